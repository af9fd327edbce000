"""Every signal reaches the job exactly once, wherever it comes from, and the launcher survives all of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher_harness import children_of, is_gone, killed_at_end, launch, launcher_argv, python, read_until, run_to_end
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.run.launch import launcher
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import DEADLINE_S, wait_for

# Prints every signal it gets; SIGPWR, which comes last of all that are pending, ends it with 7.
LISTENER = """
import os, signal
blocked = set(signal.valid_signals()) - {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
os.write(1, b'ready %d\\n' % os.getpid())
while True:
    number = signal.sigwait(blocked)
    name = signal.Signals(number).name if number in list(signal.Signals) else str(number)
    os.write(1, b'got %s\\n' % name.encode())
    if number == signal.SIGPWR:
        os._exit(7)
"""
# looks for Enter again and again: a signal just before a read that nothing ends would be handled only after it
UNSTOPPABLE = """
import select, signal
signal.signal(signal.SIGTSTP, lambda *_: print('no', flush=True))
print('ready', flush=True)
while not select.select([0], [], [], 0.05)[0]:
    pass
"""
SENT_TO_GROUPS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
NOT_SENT = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCONT,
    signal.SIGPWR,
}
# numpy starts threads that block no signal: those would take them, were there no handlers
PRELUDES = {"alone": "", "with threads of a library": "import numpy"}


@contextlib.contextmanager
def listening(run_folder: Path, prelude: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The launcher, leading a group of its own, and a descriptor with what the job says."""
    process = launch(
        run_folder / "r", python(LISTENER), prelude=prelude, stdout=subprocess.PIPE, start_new_session=True
    )
    with killed_at_end(process):
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready")
        read_until(process.stdout.fileno(), b"\n")
        yield process, process.stdout.fileno()


def all_the_job_got(process: subprocess.Popen[bytes]) -> list[bytes]:
    process.send_signal(signal.SIGPWR)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 7
    return [line.removeprefix(b"got ") for line in out.splitlines()]


@pytest.mark.parametrize("prelude", PRELUDES.values(), ids=PRELUDES.keys())
def test_every_signal_to_the_launcher_alone_reaches_the_job_once(run_folder: Path, prelude: str) -> None:
    with listening(run_folder, prelude) as (process, out):
        for number in sorted(set(signal.valid_signals()) - NOT_SENT):
            name = number.name if isinstance(number, signal.Signals) else str(number)
            process.send_signal(number)
            assert read_until(out, b"\n") == b"got " + name.encode() + b"\n"
        assert all_the_job_got(process) == [b"SIGPWR"]


def test_a_launcher_that_is_stopped_and_continued_again_and_again_ends_as_the_job_does(run_folder: Path) -> None:
    """Stops that outlast its looks: Python's timed wait for a signal then hands out what nobody has written."""
    with listening(run_folder) as (process, out):
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            wait_for(lambda: is_stopped(process.pid), "the stop")
            select.select([], [], [], 1.2 * launcher._LOOK_S)
            process.send_signal(signal.SIGCONT)
            wait_for(lambda: not is_stopped(process.pid), "the end of the stop")
            select.select([], [], [], 0.1)  # it sleeps again: the next stop shall interrupt that
        process.send_signal(signal.SIGUSR1)
        read_until(out, b"got SIGUSR1\n")
        assert all_the_job_got(process) == [b"SIGPWR"]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_signals_to_the_whole_group_and_direct_ones_reach_the_job_once_by_turns(run_folder: Path) -> None:
    with listening(run_folder) as (process, out):
        for number in SENT_TO_GROUPS:
            os.killpg(process.pid, number)
            assert read_until(out, b"\n") == b"got " + number.name.encode() + b"\n"
            # of two pending signals the lower number comes first: once this one is passed on, the other has been dealt with
            process.send_signal(signal.SIGWINCH)
            assert read_until(out, b"\n") == b"got SIGWINCH\n"
        process.send_signal(signal.SIGTERM)
        assert read_until(out, b"\n") == b"got SIGTERM\n"
        os.killpg(process.pid, signal.SIGWINCH)
        assert all_the_job_got(process) == [b"SIGWINCH", b"SIGPWR"]


def test_a_sender_that_walks_through_all_processes_is_no_second_signal(run_folder: Path) -> None:
    """As a batch system or systemd does when it ends a job."""
    with listening(run_folder) as (process, _):
        members = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        for pid in members:
            os.kill(pid, signal.SIGTERM)
        assert all_the_job_got(process) == [b"SIGTERM", b"SIGPWR"]


def test_a_job_that_ignores_sigterm_runs_on(run_folder: Path) -> None:
    job = python(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.write(1, b'ready\\n'); sys.stdin.read(); sys.exit(9)"
    )
    process = launch(run_folder / "r", job, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready\n")
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 9


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_dies_of_a_signal_takes_the_launcher_the_same_way(run_folder: Path, number: int) -> None:
    job = ["/bin/sh", "-c", "echo ready; exec sleep 60"]
    process = launch(run_folder / "r", job, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready\n")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == -number


def is_readable(run_folder: Path) -> bool:
    with contextlib.suppress(NotARun):
        return bool(read_recording(run_folder).processes)
    return False


def test_sigkill_of_the_launcher_leaves_the_job_running_and_the_run_readable(run_folder: Path) -> None:
    job = python("import os, sys; os.write(1, b'%d\\n' % os.getpid()); sys.stdin.read(); os.write(1, b'the end\\n')")
    process = launch(run_folder / "r", job, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdin is not None and process.stdout is not None
        pid = int(read_until(process.stdout.fileno(), b"\n"))
        wait_for(lambda: is_readable(run_folder / "r"), "a readable run file")
        helpers = [child for child in children_of(process.pid) if child != pid]
        process.kill()
        process.wait(DEADLINE_S)
        wait_for(lambda: all(map(is_gone, helpers)), "the end of our helper processes")
        assert not is_gone(pid)
        process.stdin.close()
        read_until(process.stdout.fileno(), b"the end\n")
    wait_for(lambda: is_gone(pid), "the end of the job")
    recording = read_recording(run_folder / "r")
    assert recording.meta.ended_ns is None
    assert recording.meta.argv[0] == sys.executable


# -- on a terminal ------------------------------------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """A shell with the launcher in the foreground of a real terminal."""

    master: int
    events: int
    commands: int
    shell: subprocess.Popen[bytes]
    launcher_pid: int

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def screen(self, wanted: bytes) -> bytes:
        return read_until(self.master, wanted)

    def foreground(self) -> None:
        os.write(self.commands, b"f")
        assert self.event() == "continued"

    def event(self) -> str:
        return read_until(self.events, b"\n").decode().strip()


def take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def on_terminal(run_folder: Path, job: list[str], prelude: str = "") -> Iterator[Terminal]:
    master, slave = os.openpty()
    events, events_w = os.pipe()
    commands_r, commands = os.pipe()
    shell = [sys.executable, str(Path(__file__).with_name("mini_shell.py")), str(events_w), str(commands_r)]
    process = subprocess.Popen(
        [*shell, *launcher_argv(run_folder / "r", job, prelude=prelude)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        pass_fds=(events_w, commands_r),
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 - this process has one thread
    )
    for descriptor in (slave, events_w, commands_r):
        os.close(descriptor)
    with killed_at_end(process):
        pid = int(read_until(events, b"\n").split()[1])
        try:
            yield Terminal(master, events, commands, process, pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            for descriptor in (master, events, commands):
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def test_ctrl_c_reaches_the_job_once_each_time(run_folder: Path) -> None:
    with on_terminal(run_folder, python(LISTENER)) as terminal:
        terminal.screen(b"ready")
        for key, name in ((b"\x03", b"SIGINT"), (b"\x03", b"SIGINT"), (b"\x1c", b"SIGQUIT")):
            terminal.press(key)
            terminal.screen(b"got " + name + b"\r\n")
        os.kill(terminal.launcher_pid, signal.SIGPWR)
        # nothing between the last one and this
        assert terminal.screen(b"got SIGPWR").strip() == b"got SIGPWR"
        assert terminal.event() == "ended 7"


def test_ctrl_c_that_kills_the_job_ends_us_by_sigint(run_folder: Path) -> None:
    with on_terminal(run_folder, ["/bin/sh", "-c", "echo ready; exec sleep 60"]) as terminal:
        terminal.screen(b"ready")
        terminal.press(b"\x03")
        assert terminal.event() == f"ended {-signal.SIGINT}"


def test_ctrl_z_stops_and_fg_continues_as_without_us(run_folder: Path) -> None:
    job = ["/bin/sh", "-c", "echo ready; read line; echo again; exit 6"]
    with on_terminal(run_folder, job) as terminal:
        terminal.screen(b"ready")
        terminal.press(b"\x1a")
        assert terminal.event() == f"stopped {signal.SIGTSTP}"
        terminal.foreground()
        terminal.press(b"\n")
        terminal.screen(b"again")
        assert terminal.event() == "ended 6"


def test_ctrl_z_stops_a_second_time_too(run_folder: Path) -> None:
    with on_terminal(run_folder, ["/bin/sh", "-c", "echo ready; read line; exit 6"]) as terminal:
        terminal.screen(b"ready")
        for _ in range(2):
            terminal.press(b"\x1a")
            assert terminal.event() == f"stopped {signal.SIGTSTP}"
            terminal.foreground()
        terminal.press(b"\n")
        assert terminal.event() == "ended 6"


def test_a_job_that_does_not_stop_on_ctrl_z_does_not_stop_us(run_folder: Path) -> None:
    with on_terminal(run_folder, python(UNSTOPPABLE)) as terminal:
        terminal.screen(b"ready")
        terminal.press(b"\x1a")
        terminal.screen(b"no")
        terminal.press(b"\n")
        assert terminal.event() == "ended 0"


def test_stopping_the_launcher_alone_stops_and_continues_the_job_with_it(run_folder: Path) -> None:
    job = ["/bin/sh", "-c", "echo ready; read line; exit 6"]
    with on_terminal(run_folder, job) as terminal:
        terminal.screen(b"ready")
        os.kill(terminal.launcher_pid, signal.SIGTSTP)
        assert terminal.event() == f"stopped {signal.SIGTSTP}"
        terminal.foreground()
        terminal.press(b"\n")
        assert terminal.event() == "ended 6"


def test_a_terminal_that_goes_away_hangs_the_job_up_once_where_we_lead_the_session(
    run_folder: Path, tmp_path: Path
) -> None:
    """As under `ssh -t host rn50-advisor run …`: the kernel signals only the leader of the session, and that is us."""
    log = tmp_path / "log"
    job = python(LISTENER.replace("os.write(1,", f"os.write(os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND),"))
    log.touch()
    master, slave = os.openpty()
    process = launch(
        run_folder / "r",
        job,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    with killed_at_end(process):
        wait_for(lambda: b"ready" in log.read_bytes(), "the start of the job")
        os.close(master)
        wait_for(lambda: b"SIGHUP" in log.read_bytes(), "the hang-up")
        process.send_signal(signal.SIGPWR)
        assert process.wait(DEADLINE_S) == 7
    assert log.read_bytes().splitlines()[1:] == [b"got SIGHUP", b"got SIGPWR"]


@pytest.mark.parametrize("delay_ms", [0, 10, 30, 80, 200])
def test_ctrl_c_at_any_moment_of_the_start_leaves_nothing_behind(run_folder: Path, delay_ms: int) -> None:
    prelude = "import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.write(1, b'begun')"
    with on_terminal(run_folder, ["/bin/sleep", "60"], prelude=prelude) as terminal:
        terminal.screen(b"begun")
        # no synchronisation: any moment is as good as any other
        select.select([], [], [], delay_ms / 1000)
        children = children_of(terminal.launcher_pid)
        terminal.press(b"\x03")
        assert terminal.event() == f"ended {-signal.SIGINT}"
    wait_for(lambda: all(map(is_gone, children)), "the end of what was started")
    assert list(Path("/dev/shm").glob(f"rn50-advisor-{terminal.launcher_pid}-*")) == []


def test_a_ctrl_c_before_the_job_starts_means_it_does_not_start(run_folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    prelude = """
import os, signal, rn50_advisor.advisor.run.launch.launcher as launcher
real = launcher._make_rings
def make_rings(folder):
    os.kill(os.getpid(), signal.SIGINT)
    return real(folder)
launcher._make_rings = make_rings
"""
    folder = run_folder / "r"
    folder.mkdir()
    done = run_to_end(folder, ["touch", str(mark)], prelude=prelude)
    assert done.returncode == -signal.SIGINT
    assert not mark.exists()
    assert not folder.exists()


def test_a_ctrl_c_between_the_last_look_and_the_fork_is_not_lost(run_folder: Path) -> None:
    prelude = """
import os, signal, rn50_advisor.advisor.run.launch.launcher as launcher
real = launcher.spawn
def spawn(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments)
launcher.spawn = spawn
"""
    done = run_to_end(run_folder / "r", ["/bin/sleep", "60"], prelude=prelude)
    assert done.returncode == -signal.SIGINT
