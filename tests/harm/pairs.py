"""Runs one command alone and under the advisor, side by side in folders of their own, and compares them."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
JOB = HERE / "job.py"
PYTHON = sys.executable
DEADLINE_S = 180.0
# Of one length: a path is as long alone as it is watched, and so is whatever is underlined in a traceback.
ALONE, WATCHED = "alone", "under"
# The job writes its own stdout and stderr to files: what the advisor prints at the end goes to the terminal that started it.
_TO_FILES = 'exec "$@" >"$OUT" 2>"$ERR"'
_OURS = ("RN50_", "PYTHONPATH", "COV_", "PYTEST_")


@dataclass(frozen=True)
class Ended:
    """How a command ended, its output, and the files it left: name -> digest of the content."""

    status: int
    out: str
    err: str
    files: dict[str, str]
    said: str  # by the advisor itself
    run: Path | None

    def differences(self, other: Ended) -> str:
        """Empty where the job was the same."""
        found = [] if self.status == other.status else [f"it ended with {self.status}, watched with {other.status}"]
        for name in ("out", "err"):
            lines = getattr(self, name).splitlines(), getattr(other, name).splitlines()
            found += difflib.unified_diff(*lines, f"{name} alone", f"{name} watched", lineterm="", n=1)
        found += [
            f"file {name}: {self.files.get(name, 'none')}, watched {other.files.get(name, 'none')}"
            for name in sorted(self.files.keys() | other.files.keys())
            if self.files.get(name) != other.files.get(name)
        ]
        return "\n".join(found)


def both(
    folder: Path,
    command: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    setup: Callable[[Path], None] | None = None,
    around: Sequence[str] = (),
    within: Sequence[str] = (),
    same: Callable[[str], str] = str,
) -> tuple[Ended, Ended]:
    """`setup` prepares the working folder of each; `around` starts the advisor (or the job alone), `within` the job.

    `same` takes out of a text what differs between any two runs. `folder` keeps the run; the jobs live under a short name: a socket's path,
    which workers make in TMPDIR, may have 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="harm-", dir="/tmp") as short:
        Path(short).chmod(0o755)  # jobs that become another user live there, too
        options = {"environment": environment, "setup": setup, "around": around, "within": within, "same": same}
        return _both(Path(short), folder / "runs", command, **options)


def _both(
    folder: Path,
    runs: Path,
    command: Sequence[str],
    *,
    environment: dict[str, str] | None,
    setup: Callable[[Path], None] | None,
    around: Sequence[str],
    within: Sequence[str],
    same: Callable[[str], str],
) -> tuple[Ended, Ended]:
    started = [
        _start(folder / name, runs, command, environment=environment or {}, setup=setup, around=around, within=within)
        for name in (ALONE, WATCHED)
    ]
    ended = []
    for name, process in zip((ALONE, WATCHED), started, strict=True):
        try:
            said = process.communicate(timeout=DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            for each in started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
            said = process.communicate()[0] + "\nit hung"
        ended.append(_ended(folder / name, runs, process.returncode, said, same))
    alone, watched = ended
    return alone, watched


def _start(
    place: Path,
    runs: Path,
    command: Sequence[str],
    *,
    environment: dict[str, str],
    setup: Callable[[Path], None] | None,
    around: Sequence[str],
    within: Sequence[str],
) -> subprocess.Popen[str]:
    work = place / "work"
    for each in (work, place / "home", place / "tmp"):
        each.mkdir(parents=True)
        each.chmod(0o777)  # jobs that become another user write there, too
    shutil.copy2(JOB, work / "job.py")
    if setup is not None:
        setup(work)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    kept |= {
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "OUT": str(place / "out"),
        "ERR": str(place / "err"),
    }
    kept |= {name: value for name, value in os.environ.items() if name == "RN50_TEST_SESSION"}
    kept |= {name: value.replace("{place}", str(place)) for name, value in environment.items()}
    line = [*within, "sh", "-c", _TO_FILES, "sh", *command]
    if place.name == WATCHED:
        entry = str(Path(PYTHON).with_name("rn50-advisor"))
        line = [entry, "run", "--no-tui", "--run-dir", str(runs), "--", *line]
    return subprocess.Popen(
        [*around, *line],
        cwd=work,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _ended(place: Path, runs: Path, status: int, said: str, same: Callable[[str], str]) -> Ended:
    def text(name: str) -> str:
        with contextlib.suppress(OSError):
            return same(_unnamed((place / name).read_bytes()).decode(errors="replace"))
        return "none"

    found = sorted(runs.glob("*/run.sqlite")) if place.name == WATCHED else []
    return Ended(status, text("out"), text("err"), _tree(place), said, found[0].parent if found else None)


def _tree(place: Path) -> dict[str, str]:
    found = {}
    for path in place.rglob("*"):
        content = "no plain file"
        if path.is_file() and not path.is_symlink():
            content = hashlib.sha256(_unnamed(path.read_bytes())).hexdigest()[:12]
        if path.parent != place:  # its output is compared by its text
            found[str(path.relative_to(place))] = content
    return found


def _unnamed(content: bytes) -> bytes:
    return content.replace(f"/{WATCHED}/".encode(), f"/{ALONE}/".encode())
