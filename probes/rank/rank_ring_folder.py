"""Access to the ring folder. Each access opens it, and only if it is the original folder, private to this user, and its owner lives.

No descriptor is kept, since a job may close all descriptors and reuse the number for a file. Failures raise OSError, which the callers
swallow: a rank that has dropped its privileges or changed its root continues without us.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from typing import TYPE_CHECKING

from .side_files import ERROR
from .thread_clocks import file_size_max

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = "owner.lock"
_SHARE = 1 / 16  # share of free memory for a small file
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_seen: dict[str, tuple[int, int]] = {}  # path -> device and inode at the first use


def arm(path: str) -> bool:
    """True if the advisor that created the folder lives. A job's daemons may outlive it, and their children inherit the folder's name."""
    try:
        with _opened(path) as folder:
            return owner_lives(folder) is True
    except OSError:
        return False


def owner_is_gone(path: str) -> bool:
    """True if the folder had an owner that is gone, or cannot be opened."""
    try:
        with _opened(path) as folder:
            return owner_lives(folder) is False
    except OSError:
        return True


def owner_lives(folder: int) -> bool | None:
    """True if the lock file is locked: the owner and its agent lock it while they live. None: there is no lock file.

    A sweep of the folder locks it, too; the next sweep removes files created meanwhile.
    """
    try:
        marker = os.open(OWNER, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        if not _is_own_file(os.fstat(marker)):
            return None
        try:
            fcntl.flock(marker, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    finally:
        os.close(marker)


@contextlib.contextmanager
def writable(path: str) -> Iterator[int]:
    """Yields a short-lived descriptor of the folder. Raises OSError, also if the owner is gone."""
    with _opened(path) as folder:
        if owner_lives(folder) is False:
            raise OSError(errno.ESTALE, "nobody is left to read it")
        yield folder


def room(folder: int, share: float) -> int:
    """Maximum bytes of one file. Beyond the job's file size limit SIGXFSZ would kill the process, and the memory is the job's."""
    space, limit = os.fstatvfs(folder), file_size_max()
    # tmpfs without a size limit reports zero blocks
    free = space.f_bavail * space.f_frsize if space.f_blocks else sys.maxsize
    return min(int(share * free), limit if limit >= 0 else sys.maxsize)


def create(folder: int, name: str, size: int) -> tuple[str, int]:
    """Creates a file for `size` bytes under a temporary name. Returns name and descriptor. `keep` gives it its final name."""
    if size > room(folder, _SHARE):
        with contextlib.suppress(OSError):  # an empty file takes no room
            os.close(os.open(ERROR % os.getpid(), _APPEND, 0o600, dir_fd=folder))
        raise OSError(errno.ENOSPC, "no room for %s" % name)
    partial = "%s.%s.new" % (name, os.urandom(8).hex())
    return partial, os.open(partial, _NEW, 0o600, dir_fd=folder)


def keep(folder: int, partial: str, name: str) -> None:
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def put(path: str, name: str, text: str) -> None:
    """Writes one small file atomically, replacing an existing one."""
    data = text.encode("utf-8", "surrogateescape")
    with writable(path) as folder:
        partial, descriptor = create(folder, name, len(data))
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            keep(folder, partial, name)
        except BaseException:
            os.unlink(partial, dir_fd=folder)
            raise


def note_error(path: str, text: str) -> None:
    """Appends one line to this process's error file."""
    with writable(path) as folder:
        descriptor = os.open(ERROR % os.getpid(), _APPEND, 0o600, dir_fd=folder)
        with open(descriptor, "ab") as file:
            if _is_own_file(os.fstat(descriptor)):
                file.write(text.encode("utf-8", "replace") + b"\n")


def read(path: str, name: str) -> str:
    with _opened(path) as folder, open(os.open(name, _READ, dir_fd=folder), encoding="utf-8") as file:
        return file.read()


def remove(path: str, name: str) -> None:
    with _opened(path) as folder:
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, _DIRECTORY)
    try:
        about = os.fstat(descriptor)
        identity = about.st_dev, about.st_ino
        if (
            about.st_uid != os.geteuid()
            or about.st_mode & 0o777 != 0o700
            or _seen.setdefault(path, identity) != identity
        ):
            raise PermissionError(errno.EPERM, "not this user's own folder")
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own_file(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
