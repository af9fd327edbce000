"""The folder in memory that the job's processes put their rings in: where it goes, who owns it, when it may be swept.

Writing through a mapping must never meet a full disk or a slow device: it lies on a file system in memory, or there is none.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rn50_advisor.advisor.run.rings import own_folder
from rn50_advisor.advisor.run.rings.own_folder import MOUNTS, OwnFolder, remove_files
from rn50_advisor.probes.host.storage.mount_table import parse_mountinfo
from rn50_advisor.probes.rank.side_files import OWN_FILES

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "rn50-advisor-"
# Required free space: a rank's smallest ring and a worker's (36 KiB) may take a sixteenth each (probes/rank/rank_ring_folder.py).
FREE_BYTES_MIN = 1 << 20
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_remove = functools.partial(remove_files, re.compile(OWN_FILES))


class RingFolder:
    """A folder made by one advisor, which holds a lock in it. The lock ends with the process, however that dies."""

    def __init__(self, *, places: Iterable[Path] | None = None, mounts: Path = MOUNTS) -> None:
        """Raises OSError if no place is fit. The name shows people and ranks (probes/rank/install.py) whose folder it is."""
        self._own = OwnFolder(_fit_place(default_places() if places is None else places, mounts), PREFIX)
        self.path = self._own.path

    def close(self, *, remove: bool) -> None:
        """Releases the folder; `remove` only if no process of the job is left that could still make a ring in it."""
        self._own.close(_remove if remove else None)


def default_places() -> tuple[Path, ...]:
    """Returns the folders that may be in memory. A container with a read-only root has no folder for temporary files."""
    places = [SHARED_MEMORY, Path(f"/run/user/{os.geteuid()}")]
    if named := os.environ.get("XDG_RUNTIME_DIR"):
        places.append(Path(named))
    with contextlib.suppress(OSError):
        places.append(Path(tempfile.gettempdir()))
    return tuple(dict.fromkeys(places))


def sweep(places: Iterable[Path] | None = None) -> int:
    """Removes folders of advisors that ended and whose jobs ended too. Returns their number."""
    return sum(
        own_folder.sweep(place, PREFIX, _remove_unused) for place in (default_places() if places is None else places)
    )


def in_use(folder: Path) -> bool:
    """True if a live process has a file of the folder mapped."""
    with contextlib.suppress(OSError):
        return any(_uses(pid, str(folder)) for pid in _ring_pids(entry.name for entry in folder.iterdir()))
    return False


def _fit_place(places: Iterable[Path], mounts: Path) -> Path:
    """Returns the first fit place. Raises OSError with the reason against each."""
    kinds = {entry.device: entry.fs_type for entry in parse_mountinfo(mounts.read_text(errors="replace"))}
    reasons = []
    for place in places:
        reason = _unfit(place, kinds)
        if not reason:
            return place
        reasons.append(f"{place} {reason}")
    raise OSError(f"no place in memory for its rings: {', '.join(reasons)} (docker: --shm-size)")


def _unfit(place: Path, kinds: dict[str, str]) -> str:
    try:
        device = place.stat().st_dev
        if kinds.get(f"{os.major(device)}:{os.minor(device)}") not in _IN_MEMORY:
            return "is on a disk"
        space = os.statvfs(place)
    except OSError as error:
        return f"cannot be had ({error.strerror})"
    if not os.access(place, os.W_OK | os.X_OK):
        return "may not be written to"
    free = space.f_bavail * space.f_frsize
    # without a limit of their own such file systems say that they have no blocks at all
    return (
        f"has {free >> 20} MiB free of the {FREE_BYTES_MIN >> 20} needed"
        if space.f_blocks and free < FREE_BYTES_MIN
        else ""
    )


def _remove_unused(place: int, name: str, folder: int) -> bool:
    """Removes the folder if no process has a ring of it mapped. Processes of other PID namespaces are not visible; they can still write
    to a ring after its name is gone.
    """
    path = os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115 - of a descriptor
    return not in_use(Path(path)) and _remove(place, name, folder)


def _ring_pids(names: Iterable[str]) -> Iterator[int]:
    """The processes that ever made something in the folder: `rank-<pid>.ring`, `worker-<pid>.ring`, `facts-<pid>.json`."""
    numbers = {name.partition("-")[2].partition(".")[0] for name in names}
    return (int(number) for number in numbers if number.isdigit())


def _uses(pid: int, folder: str) -> bool:
    """True if the process has a file of that folder mapped; false if its pid now belongs to another process."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            wanted = os.fsencode(folder) + b"/"
            return any(wanted in line for line in maps)
    except FileNotFoundError:
        return False
    except OSError:
        # alive but not readable: it counts as a user, unless another user now has the pid
        return _is_ours(pid, folder)


def _is_ours(pid: int, folder: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid == Path(folder).stat().st_uid
    return False
