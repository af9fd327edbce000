"""A mount namespace for this process, with a user namespace of its own where it may not have one otherwise."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from rn50_advisor.advisor.trials.inside import system_calls
from rn50_advisor.advisor.trials.inside.system_calls import CLONE_NEWNS, CLONE_NEWUSER, MS_PRIVATE, MS_REC

_ALL = "0 0 4294967295"  # each id is itself


@dataclass(frozen=True, slots=True)
class IdMapping:
    """`user`: in a user namespace of its own. `alone`: only these ids exist in it; files of others cannot be copied, nor their folders."""

    user: bool
    alone: tuple[int, int] | None = None

    def knows(self, about: os.stat_result) -> bool:
        return self.alone is None or (about.st_uid, about.st_gid) == self.alone


def enter() -> IdMapping:
    """Mounts made from now on are seen by this process and its children alone. Raises OSError."""
    mapping = IdMapping(user=False)
    try:
        system_calls.unshare(CLONE_NEWNS)
    except PermissionError:
        mapping = _with_user_namespace()
    system_calls.mount("none", "/", flags=MS_REC | MS_PRIVATE)
    return mapping


def _with_user_namespace() -> IdMapping:
    uid, gid = os.geteuid(), os.getegid()
    entered, enter_it = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        _map_all(os.getppid(), entered, enter_it)
    os.close(entered)
    try:
        system_calls.unshare(CLONE_NEWUSER | CLONE_NEWNS)
        os.write(enter_it, b"1")
    finally:
        os.close(enter_it)
        os.waitpid(mapper, 0)
    if _read("/proc/self/uid_map").strip() and _read("/proc/self/gid_map").strip():
        return IdMapping(user=True)
    with contextlib.suppress(FileNotFoundError):
        _write("/proc/self/setgroups", "deny")  # without it, no gid may be mapped
    if not _read("/proc/self/gid_map").strip():
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if not _read("/proc/self/uid_map").strip():
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
    return IdMapping(user=True, alone=(uid, gid))


def _map_all(pid: int, entered: int, enter_it: int) -> None:
    """In a child that stays outside: only there a container's root may map every id, and then files of all owners can be copied."""
    try:
        os.close(enter_it)
        if os.read(entered, 1):
            _write(f"/proc/{pid}/uid_map", _ALL)
            _write(f"/proc/{pid}/gid_map", _ALL)
    except OSError:
        pass  # an ordinary user may not
    finally:
        os._exit(0)


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - text of the kernel
        return file.read()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
