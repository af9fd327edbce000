"""Opens files in places where other users may write, too: only files that the job can have written are accepted."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotOfTheJob(OSError):
    """The file is another user's, older than the job, or no regular file at all."""


def open_own(path: Path, *, since_unix_s: float = 0.0, inode: int | None = None) -> BinaryIO:
    """`inode`: of the file that a process of the job has open, whosever it is. Raises OSError; waits for no pipe, follows no link."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    about = os.fstat(file.fileno())
    its_own = about.st_uid == os.geteuid() if inode is None else about.st_ino == inode
    if its_own and stat.S_ISREG(about.st_mode) and about.st_mtime >= since_unix_s:
        return file
    file.close()
    raise NotOfTheJob(f"{path} is no file of this job's")


def read_own(path: Path, *, since_unix_s: float, bytes_max: int) -> bytes:
    with open_own(path, since_unix_s=since_unix_s) as file:
        return file.read(bytes_max)
