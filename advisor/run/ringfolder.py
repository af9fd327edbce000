"""The folder in memory that the job's processes put their rings in: where it goes, who owns it, when it may be swept.

Writing through a mapping must never meet a full disk or a slow device, so it lies on /dev/shm wherever that has room.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "rn50-advisor-"
# 8 ranks and 256 workers take 12 MiB; the rest is the job's own (loader workers hand batches over in /dev/shm)
ROOM_BYTES = 64 << 20
_LOCK = "owner.lock"
# A folder whose maker has not locked it yet is left alone for this long.
_GRACE_S = 60.0


class RingFolder:
    """Made by one advisor, which holds a lock in it for as long as it lives; the lock ends with the process, however that dies."""

    def __init__(self, run_folder: Path | None, *, places: Iterable[Path] | None = None) -> None:
        """Raises OSError when no place can take it."""
        self.path = _make(_with_room(default_places() if places is None else places, run_folder))
        # Under another name until it is held: whoever sweeps just now would take a lock that nobody holds for that of a dead advisor.
        partial = self.path / f"{_LOCK}.new"
        self._lock = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # where locks do not exist (some network file systems) nobody can sweep either
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        partial.rename(self.path / _LOCK)

    def close(self, *, remove: bool) -> None:
        """Give it up; `remove` only when no process of the job is left that could still make a ring in it."""
        if remove:
            shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def default_places() -> tuple[Path, ...]:
    """A container whose root may only be read has no folder for temporary files."""
    with contextlib.suppress(OSError):
        return (SHARED_MEMORY, Path(tempfile.gettempdir()))
    return (SHARED_MEMORY,)


def sweep(places: Iterable[Path] | None = None) -> int:
    """Remove folders of advisors that are gone and whose job is gone too; returns how many."""
    swept = 0
    for place in default_places() if places is None else places:
        try:
            found = [entry for entry in os.scandir(place) if entry.name.startswith(PREFIX)]
        except OSError:
            continue
        for entry in found:
            with contextlib.suppress(OSError):
                if _is_stale(entry):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    swept += 1
    return swept


def in_use(folder: Path) -> bool:
    """Whether a live process has a file of the folder mapped."""
    with contextlib.suppress(OSError):
        return any(_uses(pid, str(folder)) for pid in _ring_pids(str(folder)))
    return False


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; with the pid it names a process for good. None: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _with_room(places: Iterable[Path], run_folder: Path | None) -> Path:
    for place in places:
        with contextlib.suppress(OSError):
            space = os.statvfs(place)
            if space.f_bavail * space.f_frsize >= ROOM_BYTES and os.access(place, os.W_OK | os.X_OK):
                return place
    if run_folder is None:
        raise OSError("no place for it has 64 MiB free")
    return run_folder


def _make(place: Path) -> Path:
    """mkdtemp makes it 0700. The name says whose it is: to people, and to ranks, which let its owner look (probes/rank/ptrace.py)."""
    owner = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner}-{start_ticks(owner) or 0}-", dir=place))


def _is_stale(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    if status.st_uid != os.geteuid() or not entry.is_dir(follow_symlinks=False):
        return False
    if not _owner_is_gone(Path(entry.path), status.st_mtime):
        return False
    return not in_use(Path(entry.path))


def _owner_is_gone(folder: Path, changed_unix_s: float) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - changed_unix_s > _GRACE_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _ring_pids(folder: str) -> set[int]:
    """The processes that ever made something in the folder: `rank-<pid>.ring`, `worker-<pid>.ring`, `facts-<pid>.json`."""
    numbers = (entry.name.partition("-")[2].partition(".")[0] for entry in os.scandir(folder))
    return {int(number) for number in numbers if number.isdigit()}


def _uses(pid: int, folder: str) -> bool:
    """Whether the process has a file of that folder mapped; a pid that others took over has not."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            wanted = os.fsencode(folder) + b"/"
            return any(wanted in line for line in maps)
    except FileNotFoundError:
        return False
    except OSError:
        # alive, and nobody may look: then it counts, unless somebody else took over the pid
        return _is_ours(pid, folder)


def _is_ours(pid: int, folder: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid == Path(folder).stat().st_uid
    return False
