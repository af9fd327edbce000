"""System calls that Python 3.10 has no function for."""

from __future__ import annotations

import ctypes
import os
import platform

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME = 32, 1024, 2048
MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME = 4096, 16384, 1 << 18, 1 << 21
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
# Of an overlay, flags are those of the mount under it: noexec in a folder for temporary files decides whether a job's build can run.
_FLAGS = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
    "nodiratime": MS_NODIRATIME,
    "relatime": MS_RELATIME,
}


def flags_of(options: frozenset[str]) -> int:
    return sum(flag for option, flag in _FLAGS.items() if option in options)


def mount(source: str, target: str, fs_type: str | None = None, *, flags: int = 0, data: str | None = None) -> None:
    """Raises OSError."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, fs_type, data)]
    checked(libc().mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), target)


def unmount(target: str) -> None:
    """Raises OSError. Takes the mount out of sight at once, though files in it are open."""
    checked(libc().umount2(os.fsencode(target), _MNT_DETACH), target)


def unshare(flags: int) -> None:
    """Raises OSError."""
    checked(libc().unshare(flags))


def pivot_root(new: str, old: str) -> None:
    """Raises OSError; where the call's number is not known, too."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root is not known on {platform.machine()}")
    checked(libc().syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)), new)


def libc() -> ctypes.CDLL:
    """The C library of this process, whose error numbers `checked` can read."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, about: str | None = None) -> int:
    """The result of a call. Raises OSError if it failed; `about`: the path to name then."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)
    return result
