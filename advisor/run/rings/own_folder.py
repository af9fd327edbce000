"""Folders that one of our processes makes for its lifetime. If it was killed, they are recognised beyond doubt and removed later.

A name alone proves nothing: users name folders as they like, and a pid is valid in one PID namespace only. So each folder contains a
marker that names its maker. The maker keeps that file locked; the lock ends with the process, however that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.probes.host.storage.mount_table import parse_mountinfo

LOCK = "owner.lock"
MOUNTS = Path("/proc/self/mountinfo")
Remove = Callable[[int, str, int], bool]
_FIRST_LINE = "made by rn50-advisor"
_BYTES_MAX = 512
_NAME_END = r"(\d+)-(\d+)-[a-z0-9_]{8}"  # pid, start ticks, and what mkdtemp adds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Maker:
    pid: int
    start_ticks: int
    uid: int
    boot: str
    pid_namespace: str


class OwnFolder:
    """`place`/`prefix`<pid>-<start ticks>-<random>, 0700."""

    def __init__(self, place: Path, prefix: str) -> None:
        """Raises OSError where it cannot be made."""
        maker = _this_process()
        # absolute: children may live in it, to whom the same name would mean another folder
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{maker.pid}-{maker.start_ticks}-", dir=place)).absolute()
        self._identity = _identity(self.path.lstat())
        try:
            self._lock = hold(self.path)
        except BaseException:
            self.path.rmdir()
            raise

    def close(self, remove: Remove | None) -> None:
        """Releases the folder; calls `remove` only if the path is still the folder that was made."""
        with contextlib.suppress(OSError), _opened(self.path.parent) as place, _opened(self.path) as folder:
            if remove is not None and _identity(os.fstat(folder)) == self._identity:
                remove(place, self.path.name, folder)
        with contextlib.suppress(OSError):
            os.close(self._lock)


@contextlib.contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A folder among the temporary files, removed at the end. Those of processes that were killed are removed by the next one."""
    place = Path(tempfile.gettempdir())
    sweep(place, prefix, remove_tree)
    own = OwnFolder(place, prefix)
    try:
        yield own.path
    finally:
        own.close(remove_tree)


def hold(folder: Path) -> int:
    """Marks the folder as this process's. Returns the descriptor that holds the lock. Raises OSError and then leaves nothing behind."""
    # Under another name until it is locked: a concurrent sweep would take an unlocked marker for a dead process's.
    partial = folder / f"{LOCK}.new"
    lock = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # without locks (some network file systems) no process can sweep either
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, _marker_text(_this_process()))
        partial.rename(folder / LOCK)
    except BaseException:
        os.close(lock)
        partial.unlink()
        raise
    return lock


def sweep(place: Path, prefix: str, remove: Remove, *, other_boots_after_s: float | None = None) -> int:
    """Passes folders whose maker is proven to be gone to `remove`. Returns the number removed.

    A folder of another boot is from before this machine's last start, or from another machine. It is removed only past this age, if given.
    """
    swept, name = 0, re.compile(re.escape(prefix) + _NAME_END)
    with contextlib.suppress(OSError), _opened(place.resolve()) as at:
        for found in filter(None, map(name.fullmatch, os.listdir(at))):  # noqa: PTH208 - a descriptor
            with contextlib.suppress(OSError, ValueError):
                swept += _sweep_one(at, found, remove, other_boots_after_s)
    return swept


def remove_files(names: re.Pattern[str], place: int, name: str, folder: int) -> bool:
    """Removes our own files with such names, and the folder if nothing else is in it."""
    for entry in os.listdir(folder):
        if names.fullmatch(entry) and _is_own_file(os.stat(entry, dir_fd=folder, follow_symlinks=False)):
            os.unlink(entry, dir_fd=folder)
    if os.listdir(folder) != [LOCK]:
        return False
    os.unlink(LOCK, dir_fd=folder)
    os.rmdir(name, dir_fd=place)
    return True


def remove_tree(place: int, name: str, folder: int) -> bool:
    """Removes a folder with its contents; only for folders that our own programs alone write to. Follows no link, enters no mount."""
    below = os.readlink(f"/proc/self/fd/{folder}") + "/"  # noqa: PTH115 - of a descriptor
    if any(entry.mount_point.startswith(below) for entry in parse_mountinfo(MOUNTS.read_text(errors="replace"))):
        return False
    shutil.rmtree(f"/proc/self/fd/{place}/{name}", ignore_errors=True)
    return name not in os.listdir(place)


def start_ticks(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot, which with the pid identifies it; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(text[text.rindex(b")") + 2 :].split()[19])


def _sweep_one(place: int, found: re.Match[str], remove: Remove, other_boots_after_s: float | None) -> bool:
    """Raises OSError or ValueError where there is no marker as we write it, and where its maker still holds it."""
    with _opened(found[0], dir_fd=place) as folder:
        about = os.fstat(folder)
        private = about.st_uid == os.geteuid() and about.st_mode & 0o777 == 0o700
        if not private or _mount(folder) != _mount(place):
            return False
        marker = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            maker = _maker(os.read(marker, _BYTES_MAX)) if _is_own_file(os.fstat(marker)) else None
            if maker is None or (maker.pid, maker.start_ticks) != (int(found[1]), int(found[2])):
                return False
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            age_s = time.time() - about.st_mtime
            return _is_gone(maker, age_s, other_boots_after_s) and remove(place, found[0], folder)
        finally:
            os.close(marker)


def _is_gone(maker: _Maker, age_s: float, other_boots_after_s: float | None) -> bool:
    """True if a maker that holds no lock has ended."""
    here = _this_process()
    if maker.uid != here.uid:
        return False
    if maker.boot != here.boot:
        return other_boots_after_s is not None and age_s > other_boots_after_s
    # the pid means nothing in another PID namespace: only the lock counts
    return maker.pid_namespace != here.pid_namespace or start_ticks(maker.pid) != maker.start_ticks


def _this_process() -> _Maker:
    """Empty where the kernel does not say: a folder with such a marker is never taken for a dead one's."""
    pid, boot, namespace = os.getpid(), "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a name that leads nowhere
    return _Maker(pid, start_ticks(pid) or 0, os.geteuid(), boot, namespace)


def _marker_text(maker: _Maker) -> bytes:
    lines = (_FIRST_LINE, maker.pid, maker.start_ticks, maker.uid, maker.boot, maker.pid_namespace)
    return "".join(f"{line}\n" for line in lines).encode()


def _maker(data: bytes) -> _Maker:
    """Raises ValueError for data that `_marker_text` did not make."""
    first_line, pid, ticks, uid, boot, namespace, end = data.decode().split("\n")
    if first_line != _FIRST_LINE or end or not boot or not namespace:
        raise ValueError("another file")
    return _Maker(int(pid), int(ticks), int(uid), boot, namespace)


def _mount(descriptor: int) -> str:
    """The mount id of an open folder, which differs even for a second mount of one file system. Raises ValueError on
    kernels before 3.15.
    """
    for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
        if line.startswith("mnt_id:"):
            return line
    raise ValueError("mnt_id")


def _is_own_file(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


@contextlib.contextmanager
def _opened(folder: Path | str, *, dir_fd: int | None = None) -> Iterator[int]:
    """Raises OSError, for a link too."""
    descriptor = os.open(folder, _FOLDER, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
