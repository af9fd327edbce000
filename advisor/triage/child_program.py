"""Runs a measuring program in a process of its own: nothing of it remains, however this one ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAMS = Path(__file__).parent / "children"


@dataclass(frozen=True, slots=True)
class Ended:
    """`last_line`: the last one that it wrote to stderr."""

    code: int
    timed_out: bool
    last_line: str


def run_child(
    python: str,
    program: str,
    asked: Mapping[str, Any],
    *,
    timeout_s: float,
    scratch: Path,
    on_result: Callable[[dict[str, Any]], None],
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """`children/<program>.py` in the given interpreter; each line of JSON that it prints is handed on as it comes."""
    command = [python, str(_PROGRAMS / f"{program}.py"), json.dumps(dict(asked))]
    timed_out = threading.Event()
    with tempfile.TemporaryFile(dir=scratch) as stderr:
        process = _start(command, stderr.fileno(), scratch, environment or {})

        def end() -> None:
            timed_out.set()
            _kill(process)

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if (result := _parsed(line)) is not None:
                    on_result(result)
            code = process.wait()
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 4000))
        lines = stderr.read().decode(errors="replace").strip().splitlines()
    return Ended(code, timed_out.is_set(), lines[-1] if lines else "")


def why_not(ended: Ended, what: str) -> str:
    """Returns the reason why a program gave no result, in words."""
    if ended.timed_out:
        return f"{what} took too long and was stopped"
    if ended.code < 0:
        return f"{what} was killed by {signal.Signals(-ended.code).name}"
    return f"{what}: {ended.last_line or f'exit code {ended.code}'}"


def _start(
    command: Sequence[str], stderr: int, scratch: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts the program in its own session, so that Ctrl-C reaches only us and its children can be killed with it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RN50_ADVISOR")}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=scratch,
        env={**own, "OMP_NUM_THREADS": "1", **_caches_in(scratch), **environment},
        start_new_session=True,
    )


def _caches_in(scratch: Path) -> dict[str, str]:
    """Sends the caches of python, torch and CUDA into the scratch folder, so that nothing is written elsewhere."""
    there = str(scratch.absolute())
    return {
        "TMPDIR": there,
        "XDG_CACHE_HOME": there,
        "CUDA_CACHE_PATH": there,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        result = json.loads(line)
    except ValueError:
        return None  # a library that talks on stdout
    return result if isinstance(result, dict) else None
