"""Signals while a job runs: none is lost, none ends the launcher, and its own handling comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, subprocess, sys, threading, time
from rn50_advisor.advisor.run.launch.job_signals import Arrival, SignalDesk
"""
PATIENCE_S = 30.0


def started(code: str) -> subprocess.Popen[str]:
    """A process of its own, in a group that the terminal could stop."""
    command = [sys.executable, "-c", "import os; os.setpgid(0, 0)" + PRELUDE + textwrap.dedent(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(code: str) -> tuple[int, list[str]]:
    process = started(code)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert not err, err
    return process.returncode, out.split()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGTSTP", "SIGALRM"])
def test_a_signal_is_handed_out_once_and_the_callers_handler_is_back_afterwards(name: str) -> None:
    code = f"""
        number, seen = signal.{name}, []
        signal.signal(number, lambda *_: seen.append("own"))
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with SignalDesk() as desk:
            os.kill(os.getpid(), number)
            assert desk.wait(5) == Arrival(number, by_kernel=False, by_terminal=False)
            assert desk.wait(0) is None
            assert seen == []
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
        os.kill(os.getpid(), number)
        print(seen)
    """
    assert ran(code) == (0, ["['own']"])


def test_the_end_of_a_child_comes_from_the_kernel_and_not_from_the_terminal() -> None:
    code = """
        with SignalDesk() as desk:
            child = subprocess.Popen(["true"])
            assert desk.wait(20) == Arrival(signal.SIGCHLD, by_kernel=True, by_terminal=False)
            print(child.wait())
    """
    assert ran(code) == (0, ["0"])


def test_an_interrupt_that_is_typed_has_reached_the_whole_group() -> None:
    code = """
        import fcntl, termios
        os.setsid()
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        with SignalDesk() as desk:
            os.write(master, b"\\x03")
            print(desk.wait(20) == Arrival(signal.SIGINT, by_kernel=True, by_terminal=True))
    """
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (found.returncode, found.stdout.strip()) == (0, "True"), found.stderr


def test_a_pipe_of_our_own_that_breaks_is_no_signal_for_the_job() -> None:
    code = """
        with SignalDesk() as desk:
            read, write = os.pipe()
            os.close(read)
            try:
                os.write(write, b"x")
            except BrokenPipeError:
                print(desk.wait(0))
    """
    assert ran(code) == (0, ["None"])


def test_only_what_asks_to_end_is_taken_before_the_job_runs() -> None:
    code = """
        with SignalDesk() as desk:
            assert desk.pending_end() is None
            for number in (signal.SIGUSR1, signal.SIGTERM):
                os.kill(os.getpid(), number)
            print(desk.pending_end(), desk.pending_end(), desk.wait(0).number)
    """
    assert ran(code) == (
        0,
        [str(int(number)) if number else "None" for number in (signal.SIGTERM, None, signal.SIGUSR1)],
    )


def test_news_on_a_descriptor_end_the_wait() -> None:
    code = f"""
        with SignalDesk() as desk:
            read, write = os.pipe()
            os.write(write, b"x")
            print(desk.wait({100 * PATIENCE_S}, read))
    """
    assert ran(code) == (0, ["None"])


def test_a_signal_that_a_thread_of_a_library_gets_is_not_lost() -> None:
    code = """
        library = threading.Thread(target=time.sleep, args=(60,), daemon=True)
        library.start()
        with SignalDesk() as desk:
            signal.pthread_kill(library.ident, signal.SIGUSR2)
            while (arrival := desk.wait(0.1)) is None:
                pass
            print(arrival.number == signal.SIGUSR2, arrival.by_terminal)
    """
    assert ran(code) == (0, ["True", "False"])


def test_what_came_while_the_recording_closed_is_dropped_unless_it_asks_us_to_end() -> None:
    code = """
        with SignalDesk():
            os.kill(os.getpid(), signal.{0})
        print("went on")
    """
    assert ran(code.format("SIGINT")) == (0, ["went", "on"])
    assert ran(code.format("SIGTERM")) == (-signal.SIGTERM, [])


def test_we_stop_as_the_job_did_and_go_on_when_continued() -> None:
    for name in ("SIGTSTP", "SIGSTOP"):
        code = f"""
            with SignalDesk() as desk:
                desk.stop_ourselves(signal.{name})
                print("went on")
        """
        process = started(code)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.Signals[name]
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate(timeout=PATIENCE_S)[0].split() == ["went", "on"]


def dispositions(shell: str, tmp_path: Path) -> dict[str, int]:
    """Of a job that is started inside the desk: which signals it ignores and blocks, as bit sets."""
    script = tmp_path / "starts.py"
    script.write_text(
        PRELUDE
        + "with SignalDesk() as desk:\n"
        + "    subprocess.run(['cat', '/proc/self/status'], restore_signals=False, preexec_fn=desk.restore_in_child)\n"
    )
    found = subprocess.run(
        ["sh", "-c", f"{shell}; {sys.executable} {script}; true"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    masks = dict(line.split(":", 1) for line in found.stdout.splitlines())
    return {name: int(masks[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")}


@pytest.mark.parametrize("ignored", [(), ("PIPE",), ("USR1", "HUP")])
def test_the_job_ignores_what_we_were_started_ignoring_and_nothing_else(
    ignored: tuple[str, ...], tmp_path: Path
) -> None:
    expected = sum(1 << (signal.Signals[f"SIG{name}"] - 1) for name in ignored)
    found = dispositions(f"trap '' {' '.join(ignored)}" if ignored else "true", tmp_path)
    inherited = int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigBlk")).split()[
            1
        ],
        16,
    )
    watched = sum(1 << (signal.Signals[f"SIG{name}"] - 1) for name in ("PIPE", "USR1", "HUP", "XFSZ", "TERM"))
    assert (found["SigIgn"] & watched, found["SigBlk"], found["SigCgt"]) == (expected, inherited, 0)
