"""`run` on a terminal opens the screen; however it is left, the exit code and the job's output are as promised."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_process import TIMEOUT_S, environment
from launcher_harness import children_that_run

# However slow the machine is, the job is brief or it is not.
PATIENT = "import rn50_advisor.advisor.commands.on_screen as s; s.BRIEF_S = 60.0; from rn50_advisor.advisor.cli import main; main()"
WAITS = "import sys; print('job is up', flush=True); open('gate').read(); sys.exit(7)"


class Terminal:
    """The command line on a pseudo-terminal of 30 × 100."""

    def __init__(
        self, cwd: Path, *arguments: str, program: tuple[str, ...] = ("-m", "rn50_advisor.advisor.cli")
    ) -> None:
        self.screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=cwd,
            env=environment(TERM="xterm-256color"),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.shown = b""
        self.deadline = time.monotonic() + TIMEOUT_S

    def read(self) -> None:
        if select.select([self.screen], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # the other side has closed it
                self.shown += os.read(self.screen, 65536)

    def until(self, words: bytes) -> None:
        while words not in self.shown and self.process.poll() is None and time.monotonic() < self.deadline:
            self.read()
        assert words in self.shown, self.shown[-3000:]

    def press(self, key: bytes) -> None:
        os.write(self.screen, key)

    def ended(self) -> int:
        while self.process.poll() is None and time.monotonic() < self.deadline:
            self.read()
        code = self.process.poll()
        assert code is not None, self.shown[-3000:]
        self.read()
        return code


@contextlib.contextmanager
def on_terminal(
    cwd: Path, *arguments: str, program: tuple[str, ...] = ("-m", "rn50_advisor.advisor.cli")
) -> Iterator[Terminal]:
    terminal = Terminal(cwd, *arguments, program=program)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(TIMEOUT_S)
        os.close(terminal.screen)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that the job reads to its end before it goes on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def job(program: str) -> list[str]:
    return ["--", sys.executable, "-c", program]


def test_a_brief_job_leaves_its_output_and_exit_code_without_a_screen(tmp_path: Path) -> None:
    usage = job("print('usage: train.py'); raise SystemExit(3)")
    with on_terminal(tmp_path, "run", *usage, program=("-c", PATIENT)) as terminal:
        assert terminal.ended() == 3
        assert b"usage: train.py" in terminal.shown
        assert b"\x1b[?1049h" not in terminal.shown


@pytest.mark.parametrize("asks", ["input('name? ')", "breakpoint()"])
def test_a_job_that_asks_learns_how_it_could_be_answered(tmp_path: Path, asks: str) -> None:
    with on_terminal(tmp_path, "run", *job(asks), program=("-c", PATIENT)) as terminal:
        assert terminal.ended() == 1
        assert b"--no-tui" in terminal.shown


def test_a_command_that_does_not_exist_is_refused_before_a_screen_opens(tmp_path: Path) -> None:
    with on_terminal(tmp_path, "run", "--", "no-such-command-anywhere") as terminal:
        assert terminal.ended() == 127
        assert b"command not found" in terminal.shown and b"\x1b[?1049h" not in terminal.shown
    assert not (tmp_path / "runs").exists()


def test_no_tui_leaves_the_terminal_to_the_job(tmp_path: Path) -> None:
    with on_terminal(
        tmp_path, "run", "--no-tui", *job("import os; print(os.isatty(1)); raise SystemExit(4)")
    ) as terminal:
        assert terminal.ended() == 4
        assert b"True" in terminal.shown and b"\x1b[?1049h" not in terminal.shown


def test_after_the_screen_the_exit_code_is_the_jobs_and_a_summary_remains(tmp_path: Path, gate: Path) -> None:
    with on_terminal(tmp_path, "run", "--report", "a.json", *job(WAITS)) as terminal:
        terminal.until(b"\x1b[?1049h")
        _let_go(gate, terminal)
        terminal.until(b"ended")
        terminal.press(b"q")
        assert terminal.ended() == 7
        assert b"job is up" in terminal.shown.rpartition(b"\x1b[?1049l")[2]
        assert (tmp_path / "a.json").exists()


def test_a_detached_job_goes_on_to_its_own_end(tmp_path: Path, gate: Path) -> None:
    with on_terminal(tmp_path, "run", *job(WAITS + " # detached")) as terminal:
        terminal.until(b"\x1b[?1049h")
        terminal.press(b"q")
        terminal.until(b"Leave it running")
        terminal.press(b"d")
        assert terminal.ended() == 0
        assert b"rn50-advisor watch" in terminal.shown
    _let_go(gate)
    (folder,) = (tmp_path / "runs").iterdir()
    deadline = time.monotonic() + TIMEOUT_S
    while (code := _exit_code(folder)) is None and time.monotonic() < deadline:
        select.select([], [], [], 0.1)
    assert code == 7


def test_terminating_the_advisor_terminates_the_job(tmp_path: Path, gate: Path) -> None:
    with on_terminal(tmp_path, "run", *job(WAITS)) as terminal:
        terminal.until(b"\x1b[?1049h")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == -signal.SIGTERM


def test_without_its_terminal_the_advisor_waits_idly_for_the_job_and_reports_it(tmp_path: Path, gate: Path) -> None:
    """No hang-up signal comes here: the pseudo-terminal controls nobody. A user has this under `nohup`."""
    with on_terminal(tmp_path, "run", "--report", "a.json", *job(WAITS)) as terminal:
        terminal.until(b"\x1b[?1049h")
        terminal.until(b"job is up")
        os.close(terminal.screen)
        terminal.screen = os.open(os.devnull, os.O_RDWR)
        _wait_until(lambda: _threads(terminal.process.pid) <= 2)  # the screen's reader, writer and pollers are gone
        assert terminal.process.poll() is None
        _let_go(gate)
        assert terminal.process.wait(TIMEOUT_S) == 7
        assert (tmp_path / "a.json").exists()


def _wait_until(come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not come():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _threads(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/task").iterdir()])


def test_a_job_whose_supervisor_was_killed_is_shown_to_its_end_and_is_no_success(tmp_path: Path, gate: Path) -> None:
    zero = WAITS.replace("sys.exit(7)", "sys.exit(0)")
    with on_terminal(tmp_path, "run", *job(zero)) as terminal:
        terminal.until(b"\x1b[?1049h")
        terminal.until(b"job is up")
        os.kill(_supervisor(terminal.process.pid), signal.SIGKILL)
        terminal.until(b"still runs, unrecorded")
        assert b"job has ended" not in terminal.shown
        _let_go(gate, terminal)
        terminal.until(b"job has ended; its exit code is unknown")
        terminal.press(b"q")
        assert terminal.ended() == 1
        assert b"how the job ended is not known" in terminal.shown.rpartition(b"\x1b[?1049l")[2]


def _supervisor(pid: int) -> int:
    (supervisor,) = children_that_run(pid, b"rn50_advisor.advisor.run.launch.supervise")
    return supervisor


def _let_go(gate: Path, terminal: Terminal | None = None) -> None:
    """Opens and closes the pipe as soon as the job reads it."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO, error  # no reader yet
            if terminal is not None:
                terminal.read()
        else:
            return
    raise AssertionError("the job never came to its gate")


def _exit_code(folder: Path) -> int | None:
    from rn50_advisor.advisor.store.run_reader import read_recording

    return read_recording(folder).meta.exit_code
