"""Keeps what a trial writes away from the user's files: an overlay over every file system, else Landlock, else no trial."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.run.rings import own_folder
from rn50_advisor.advisor.run.rings.own_folder import OwnFolder
from rn50_advisor.advisor.trials.inside import attempts
from rn50_advisor.advisor.trials.inside.contained import NOT_CONTAINED, REPORT, place_of
from rn50_advisor.advisor.trials.inside.mount_view import MOUNTINFO, is_within, parse, visible
from rn50_advisor.advisor.trials.inside.overlay_root import JOB_FOLDER
from rn50_advisor.advisor.trials.job_variables import TRACKERS, moved_caches, offline
from rn50_advisor.advisor.trials.tree_end import end_tree

PREFIX = "rn50-try-"  # short: sockets in the folder for temporary files have names of at most 107 bytes
ROOM_MIN_BYTES = 4 << 30  # free where a trial's files go, or it is not begun there: checkpoints of one trial are to fit
ROOM_LEFT_BYTES = 1 << 30  # with less left, a trial ends: the disk belongs to others too
_MEMORY_SHARE = 0.25  # of what is available, for files where no disk can take them
_OTHER_PLACES = ("/var/tmp",)  # often on a disk where the usual place is in memory
_SHORT_PLACES = ("/tmp", "/var/tmp")
# A socket's name has at most 107 bytes. Those of loader workers (`/rn50-try-…/job/tmp/pymp-…/listener-…`) lie 76 below the place.
PLACE_BYTES_MAX = 30
_IN_MEMORY = {"tmpfs", "ramfs"}
_TRIED_WITHIN_S = 60.0
_DIRECTORY_RIGHTS = 0o700
_VARIABLES_MAX = 64  # with paths that are looked at
_MODULE = "rn50_advisor.advisor.trials.inside.contained"
_ATTEMPTS = "rn50_advisor.advisor.trials.inside.attempts"
_ALWAYS_WRITABLE = ("/dev", "/proc", "/sys")

Mode = Literal["overlay", "landlock"]


class CannotContain(AdvisorError):
    """Nothing on this machine holds back what a trial writes."""

    exit_code = 77  # EX_NOPERM of sysexits.h


@dataclass(frozen=True, slots=True)
class Way:
    """How writes are held back. `memory_bytes`: of an overlay whose files go to memory."""

    mode: Mode
    place: Path
    memory_bytes: int | None = None


class Containment:
    """One way, with a folder of ours for what jobs write. Each start of a command finds the user's files as they are."""

    def __init__(self, way: Way, *, keep: Sequence[Path] = (), wanted: Sequence[str] = ()) -> None:
        """`keep`: paths that jobs write to for real; `wanted`: folders that they are likely to write to. Raises OSError."""
        self.way = way
        self.unwritable: list[str] = []
        own_folder.sweep(way.place, PREFIX, _remove)
        self._owned = OwnFolder(way.place, PREFIX)
        self._keep = [str(path.absolute()) for path in keep]
        self._wanted = list(wanted)
        self.folder = self._owned.path
        self._job_folder = self.folder / JOB_FOLDER
        self._job_folder.mkdir(mode=0o700)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command in its containment. The process stays the same, so that its pid is the job's."""
        spec: dict[str, Any] = {"mode": self.way.mode, "private": str(self.folder), "keep": self._keep}
        if self.way.mode == "overlay":
            spec |= {"memory_bytes": self.way.memory_bytes, "wanted": [*self._wanted, *_folders_in(argv)]}
        else:
            spec["writable"] = [*_ALWAYS_WRITABLE, os.path.realpath("/dev/shm"), str(self._job_folder)]
        return [*module_command(_MODULE, [json.dumps(spec), "--"]), *argv]

    def environment(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """Variables of the job to set, and with None to unset."""
        if self.way.mode == "overlay":
            return offline(given, self._job_folder, read_only=False)
        return moved_caches(given, self._job_folder) | offline(given, self._job_folder, read_only=True)

    def notes(self) -> tuple[str, ...]:
        """What is held back, and what is not, in sentences."""
        trackers = (
            f"{', '.join(TRACKERS[:-1])} and {TRACKERS[-1]} are set offline, unless the job's code chooses otherwise"
        )
        beyond = "not held back: what the job sends over the network (pushes, buckets, databases) or asks of this machine's services"
        if self.way.mode == "landlock":
            return (
                "trials can read all files and change none, but temporary files and caches of their own; Landlock holds the rest back, "
                "and a job that must save something fails in its trial",
                trackers,
                f"{beyond}; owners, permissions and times of files",
            )
        where = "memory" if self.way.memory_bytes is not None else str(self.way.place)
        kept = f"what trials write goes to an overlay in {where} and is thrown away; the job finds its files as usual"
        missing = [f"in a trial nothing can be written to {', '.join(self.unwritable)}"] if self.unwritable else []
        return (kept, *missing, trackers, beyond)

    def why_failed(self, pid: int) -> str | None:
        """Why the start with this pid, which still runs or has not been waited for, did not become the job; None if it did."""
        try:
            report = json.loads(Path(place_of(str(self.folder), pid), REPORT).read_text())
        except (OSError, ValueError):
            return "the containment was not set up"
        failed: str | None = report.get("failed")
        return failed

    def failures(self) -> Iterator[str]:
        """Why starts failed."""
        for report in self.folder.glob(f"*/{REPORT}"):
            with contextlib.suppress(OSError, ValueError):
                if failed := json.loads(report.read_text()).get("failed"):
                    yield failed

    def has_room(self) -> bool:
        """False once trials have filled the disk so far that others could suffer."""
        return self.way.memory_bytes is not None or _free_bytes(self.folder) >= ROOM_LEFT_BYTES

    def end(self, pid: int, ring_folder: Path | None = None) -> list[int]:
        """Ends all processes of the start with this pid; see `end_tree`."""
        return end_tree(pid, ring_folder)

    def clear(self) -> None:
        """Removes what ended starts have written."""
        for place in self.folder.iterdir():
            pid, _, ticks = place.name.partition("-")
            if pid.isdigit() and ticks.isdigit() and own_folder.start_ticks(int(pid)) != int(ticks):
                _remove_below(place)

    def close(self) -> None:
        """Removes all that jobs have written. They have ended."""
        self._owned.close(_remove)

    def __enter__(self) -> Containment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose(argv: Sequence[str] = (), *, keep: Sequence[Path] = (), ways: Sequence[Way] | None = None) -> Containment:
    """The first way that works here, which a child has tried. Raises CannotContain. `argv`: the job's; `ways`: those to try."""
    wanted = _wanted(argv)
    reasons = list[str]()
    for way in ways if ways is not None else _ways(reasons):
        try:
            containment = Containment(way, keep=keep, wanted=wanted)
        except OSError as error:
            reasons.append(f"{way.place}: {error.strerror}")
            continue
        reason = _try(containment, wanted)
        if reason is None:
            return containment
        containment.close()
        reasons.append(f"{way.mode} in {way.place}: {reason}")
    raise CannotContain(
        f"what a trial writes cannot be held back on this machine ({'; '.join(dict.fromkeys(reasons))})",
        "--allow-writes lets trials write as the job always does",
    )


def _ways(reasons: list[str]) -> Iterator[Way]:
    """Best first. Adds to `reasons` why a place is left out."""
    first = Path(tempfile.gettempdir())
    places = dict.fromkeys(Path(os.path.realpath(place)) for place in (first, *_OTHER_PLACES))
    for place in sorted(places, key=_is_in_memory):
        with contextlib.suppress(OSError):
            if (free := _free_bytes(place)) >= ROOM_MIN_BYTES:
                yield Way("overlay", place)
            else:
                reasons.append(f"{place}: {free / 2**30:.1f} of {ROOM_MIN_BYTES >> 30} GiB are free")
    memory_bytes = int(psutil.virtual_memory().available * _MEMORY_SHARE)
    if memory_bytes >= ROOM_LEFT_BYTES:
        yield Way("overlay", first, memory_bytes)
    yield Way("landlock", _short_place(first))


def _short_place(first: Path) -> Path:
    """Where the job's own folder for temporary files leaves room for the names of sockets; the usual place if no other is shorter."""
    places = (first, *map(Path, _SHORT_PLACES))
    return next((p for p in places if len(os.fsencode(p)) <= PLACE_BYTES_MAX and os.access(p, os.W_OK)), first)


def _try(containment: Containment, wanted: Sequence[str]) -> str | None:
    """Lets a child change files that we made for that. Returns why the containment does not hold, or not let it work."""
    way = containment.way
    with tempfile.TemporaryDirectory(dir=way.place, prefix=PREFIX) as made:
        folder = Path(made)
        attempts.lay_out(folder)
        before = attempts.seen_in(folder)
        command = containment.command(module_command(_ATTEMPTS, [made, *wanted]))
        try:
            child = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIED_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"took more than {_TRIED_WITHIN_S:.0f} s"
        if attempts.seen_in(folder) != before:
            return "a child's writes came through"
    if child.returncode == NOT_CONTAINED:
        return next(containment.failures(), "not set up")
    try:
        outcome = json.loads(child.stdout)
    except ValueError:
        return (child.stderr.decode(errors="replace").strip().splitlines() or [f"ended with {child.returncode}"])[-1]
    if way.mode == "overlay":
        containment.unwritable = [path for path in outcome["unwritable"] if os.access(path, os.W_OK)]
        if outcome["refused"]:
            return f"files cannot be {', '.join(outcome['refused'])} as usual"
    return None


def _wanted(argv: Sequence[str]) -> list[str]:
    """Folders that the job is likely to write to, by what it is given."""
    values = [value for value in os.environ.values() if value.startswith("/") and ":" not in value][:_VARIABLES_MAX]
    named = [os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), *_folders_in(argv), *values]  # noqa: PTH109, PTH111
    folders = dict.fromkeys(os.path.realpath(path) for path in named if os.path.isdir(path))  # noqa: PTH112
    return [folder for folder in folders if folder != "/" and os.access(folder, os.W_OK)]


def _folders_in(argv: Sequence[str]) -> list[str]:
    """Folders that arguments name, or in which they name a file to be made."""
    paths = [word.rpartition("=")[2] for word in argv]
    named = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths if "/" in path]  # noqa: PTH112, PTH120
    return [os.path.realpath(folder) for folder in named if os.path.isdir(folder)]  # noqa: PTH112


def _is_in_memory(place: Path) -> bool:
    """A checkpoint that is written there takes the memory of the job."""
    mounts = visible(parse(MOUNTINFO.read_text(errors="surrogateescape")))
    over = [mount for mount in mounts if is_within(str(place), mount.point)]
    return bool(over) and over[-1].fs_type in _IN_MEMORY


def _free_bytes(place: Path) -> int:
    about = os.statvfs(place)
    return about.f_bavail * about.f_frsize


def _remove(place: int, name: str, folder: int) -> bool:
    _open_up(Path(f"/proc/self/fd/{folder}"))
    return own_folder.remove_tree(place, name, folder)


def _remove_below(folder: Path) -> None:
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _remove(descriptor, folder.name, inner)
    finally:
        os.close(inner)
        os.close(descriptor)


def _open_up(folder: Path) -> None:
    """Lets us into folders that an overlay keeps for itself, or a job has closed."""
    for path, names, _ in os.walk(folder, topdown=True):
        for name in names:
            inner = Path(path, name)
            with contextlib.suppress(OSError):
                mode = inner.lstat().st_mode
                if stat.S_ISDIR(mode) and mode & _DIRECTORY_RIGHTS != _DIRECTORY_RIGHTS:
                    inner.chmod(stat.S_IMODE(mode) | _DIRECTORY_RIGHTS)
