"""Starts the launcher in a separate process, as the command line does, and reads its output. Also the main program of that process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[3]
PYTHON = sys.executable


def launcher_argv(run_folder: Path, job: list[str], *, prelude: str = "", **options: Any) -> list[str]:
    """`prelude` is Python that runs before the job is launched."""
    return [PYTHON, str(Path(__file__)), str(run_folder), repr(options), prelude, *job]


def in_agent(code: str) -> str:
    """Returns a prelude that runs this Python in the recording process before it starts."""
    return f"""
import rn50_advisor.advisor.run.child_talk as child_talk
start = child_talk.start_module
child_talk.start_module = lambda module, arguments, **rest: start("prepared_agent", [{code!r}, *arguments], **rest)
"""


def launch(run_folder: Path, job: list[str], *, prelude: str = "", **popen: Any) -> subprocess.Popen[bytes]:
    options = popen.pop("options", {})
    return subprocess.Popen(launcher_argv(run_folder, job, prelude=prelude, **options), **popen)


def run_to_end(run_folder: Path, job: list[str], **popen: Any) -> subprocess.CompletedProcess[bytes]:
    process = launch(run_folder, job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)
    out, err = process.communicate(timeout=DEADLINE_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def python(code: str, *arguments: str) -> list[str]:
    return [PYTHON, "-c", code, *arguments]


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Returns output up to and including `wanted`; fails after the deadline or at the end of the file."""
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{wanted!r} did not come within {DEADLINE_S} s, but {seen!r}"
        try:
            data = os.read(descriptor, 1)  # what follows is for the next reader
        except OSError:
            data = b""
        assert data, f"ended without {wanted!r}, after {seen!r}"
        seen += data
    return seen


def is_gone(pid: int) -> bool:
    """True if the process has ended; a zombie counts as ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def children_that_run(pid: int, *programs: bytes) -> list[int]:
    """Returns the children that name one of `programs` in their command line; one that ends meanwhile is none."""
    found = []
    for child in children_of(pid):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            found += [child] * any(program in command for program in programs)
    return found


def descendants_of(pid: int) -> list[int]:
    children = children_of(pid)
    return children + [below for child in children for below in descendants_of(child)]


@contextlib.contextmanager
def killed_at_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        # a job outlives its launcher, so each process is killed separately
        family = descendants_of(process.pid) if process.poll() is None else []
        for pid in (*family, *((process.pid,) if family or process.poll() is None else ())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def main() -> None:
    folder, options, prelude, *job = sys.argv[1:]
    exec(prelude, {})
    from rn50_advisor.advisor.model.errors import AdvisorError
    from rn50_advisor.advisor.run.launch.launcher import exit_like, run_job
    from rn50_advisor.advisor.run.run_options import RunOptions

    try:
        end = run_job(job, run_folder=Path(folder), options=RunOptions(**eval(options)))
    except AdvisorError as error:
        print(f"{error.message} | {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    exit_like(end)


if __name__ == "__main__":
    main()
