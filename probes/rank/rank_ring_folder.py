"""The ring folder as this process may use it: opened anew each time, and only while it is the one that was there at the start, private
to this user, and its owner lives.

No descriptor is kept: a job may close all of its own, and give the number to a file. Whatever cannot be done raises OSError, which the
wall swallows: a rank that has given up its rights, or its root, goes on without us.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from typing import TYPE_CHECKING

from .thread_clocks import file_size_max

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = "owner.lock"
_SHARE = 1 / 16  # of the memory that is free, for a small file
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_seen: dict[str, tuple[int, int]] = {}  # path -> device and inode, of the first time


def arm(path: str) -> bool:
    """Whether the advisor that made the folder lives: daemons of a job outlive it, and their children find its name in the environment."""
    try:
        with _opened(path) as folder:
            return owner_lives(folder) is True
    except OSError:
        return False


def owner_is_gone(path: str) -> bool:
    """Of a folder whose owner was there once."""
    try:
        with _opened(path) as folder:
            return owner_lives(folder) is False
    except OSError:
        return True


def owner_lives(folder: int) -> bool | None:
    """It holds a lock as long as it lives, and so does its agent. None: there is no marker.

    Who sweeps the folder holds that lock too: what is made meanwhile goes with the next sweep.
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
    """A descriptor of the folder, for the moment."""
    with _opened(path) as folder:
        if owner_lives(folder) is False:
            raise OSError(errno.ESTALE, "nobody is left to read it")
        yield folder


def room(folder: int, share: float) -> int:
    """Bytes that one file may have: more than the job may write would end it (SIGXFSZ), and the memory is the job's."""
    space, limit = os.fstatvfs(folder), file_size_max()
    # without a limit of their own, file systems in memory say that they have no blocks at all
    free = space.f_bavail * space.f_frsize if space.f_blocks else sys.maxsize
    return min(int(share * free), limit if limit >= 0 else sys.maxsize)


def create(folder: int, name: str, size: int) -> tuple[str, int]:
    """A new file under a name of its own, with room for `size` bytes: its name and a descriptor; `keep` gives it the name it is read by."""
    if size > room(folder, _SHARE):
        with contextlib.suppress(OSError):  # a name takes no room
            os.close(os.open("error-%d.txt" % os.getpid(), _APPEND, 0o600, dir_fd=folder))
        raise OSError(errno.ENOSPC, "no room for %s" % name)
    partial = "%s.%s.new" % (name, os.urandom(8).hex())
    return partial, os.open(partial, _NEW, 0o600, dir_fd=folder)


def keep(folder: int, partial: str, name: str) -> None:
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def put(path: str, name: str, text: str) -> None:
    """One small file, whole or not at all; in the place of the one that was there."""
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
    """One line more of what went wrong in this process."""
    with writable(path) as folder:
        descriptor = os.open("error-%d.txt" % os.getpid(), _APPEND, 0o600, dir_fd=folder)
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
