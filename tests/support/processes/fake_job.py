"""A job under the launcher that writes rings without torch, controlled by a test; and its recording."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launcher_harness import PYTHON, killed_at_end, launch, read_until
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import DEADLINE_S, wait_for

FAKE_RANK = str(Path(__file__).with_name("fake_rank.py"))
QUICK = {"poll_s": 0.05, "period_s": 0.2, "stall_after_s": 0.6, "stall_refresh_s": 0.3}


class Job:
    """A fake rank under the launcher, and its recording so far."""

    def __init__(self, process: subprocess.Popen[bytes], run_folder: Path) -> None:
        self.process = process
        self.run_folder = run_folder
        self.pid = int(self.answer("pid").split()[1])

    def send(self, *commands: str, wanted: str = "ok") -> str:
        assert self.process.stdin is not None
        answer = ""
        for command in commands:
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
            answer = self.answer(wanted)
        return answer

    def order(self, command: str) -> None:
        """Sends a command that the rank does not answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, wanted: str) -> str:
        assert self.process.stdout is not None
        read_until(self.process.stdout.fileno(), wanted.encode())
        return wanted + read_until(self.process.stdout.fileno(), b"\n").decode().rstrip()

    def recording(self) -> Recording | None:
        with contextlib.suppress(NotARun):
            return read_recording(self.run_folder)
        return None

    def until(self, condition: Any, what: str) -> Any:
        return wait_for(lambda: (now := self.recording()) is not None and condition(now), what)

    def end(self, code: int) -> Recording:
        assert self.process.wait(DEADLINE_S) == code
        return read_recording(self.run_folder)


@contextlib.contextmanager
def fake_rank(run_folder: Path, rank: int = -1, gap_ms: int = 0, **popen: Any) -> Iterator[Job]:
    options = {**QUICK, **popen.pop("options", {})}
    argv = [PYTHON, FAKE_RANK, str(rank), str(gap_ms)]
    process = launch(run_folder / "r", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, options=options, **popen)
    with killed_at_end(process):
        yield Job(process, run_folder / "r")
