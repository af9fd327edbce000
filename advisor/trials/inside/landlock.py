"""Makes every file read-only for this process and its children, but for some folders: Landlock, without any privilege.

Before Linux 6.2 Landlock does not know truncation, which then a system call filter refuses, also in folders that may be written to.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Sequence

from rn50_advisor.advisor.trials.inside.system_calls import checked, libc

# Numbers that are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_ASK_VERSION = 1
_PR_SET_NO_NEW_PRIVS = 38
WRITE_FILE = 1 << 1
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE = sum(
    1 << bit for bit in range(6, 13)
)  # character device, folder, file, socket, FIFO, block device, symbolic link
_REFER, TRUNCATE = 1 << 13, 1 << 14
_SINCE = {_REFER: 2, TRUNCATE: 3}  # Landlock's version
# By machine: the filter's name for it, and the numbers of truncate, openat and, if it exists, open.
_TRUNCATING = {"x86_64": (0xC000003E, 76, 257, 2), "aarch64": (0xC00000B7, 45, 56, 56)}
_LOAD, _AND, _IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_PR_SET_SECCOMP, _FILTER = 22, 2
_OF_FILES = WRITE_FILE | TRUNCATE  # what a rule about a single file may name


def rights(version: int) -> int:
    """All rights to change files that this version of Landlock knows. Reading and executing are not handled, and so stay free."""
    later = sum(right for right, since in _SINCE.items() if version >= since)
    return WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | later


def restrict(writable: Sequence[str], *, newest: int = 99) -> int:
    """Returns Landlock's version, `newest` at most. Raises OSError where it does not work. Folders that do not exist are left out."""
    version = min(version_here(), newest)
    if not version:
        raise OSError("this kernel has no Landlock")
    handled = rights(version)
    ruleset = _make_ruleset(handled)
    for path in writable:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed = handled if os.path.isdir(path) else handled & _OF_FILES  # noqa: PTH112 - the path may not be a text
        _allow(ruleset, place, allowed)
        os.close(place)
    _restrict_self(ruleset)
    os.close(ruleset)
    if not handled & TRUNCATE:
        _refuse_truncation()
    return version


def version_here() -> int:
    """0 where the kernel has no Landlock, or has it switched off."""
    found: int = libc().syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), _ASK_VERSION)
    return max(found, 0)


def _make_ruleset(handled: int) -> int:
    """A descriptor of rules about these rights. Raises OSError."""
    attribute = struct.pack("=Q", handled)
    size = ctypes.c_size_t(len(attribute))
    return checked(libc().syscall(ctypes.c_long(_CREATE_RULESET), attribute, size, 0))


def _allow(ruleset: int, folder: int, rights: int) -> None:
    """Raises OSError."""
    attribute = struct.pack("=Qi", rights, folder)
    checked(libc().syscall(ctypes.c_long(_ADD_RULE), ruleset, _RULE_PATH_BENEATH, attribute, 0))


def _restrict_self(ruleset: int) -> None:
    """For ever. Raises OSError."""
    _with_leave(lambda: libc().syscall(ctypes.c_long(_RESTRICT_SELF), ruleset, 0))


def _with_leave(call: Callable[[], int]) -> None:
    """Gives up new privileges only where the kernel asks for it. Raises OSError."""
    if call() != 0:
        checked(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        checked(call())


def _refuse_truncation() -> None:
    """Raises OSError; also on a machine whose system calls' numbers are not known here."""
    if platform.machine() not in _TRUNCATING:
        raise OSError("this kernel's Landlock cannot hold back truncation")
    steps = truncation_filter(*_TRUNCATING[platform.machine()])
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    about = struct.pack("@HP", len(steps), ctypes.addressof(program))
    _with_leave(lambda: libc().prctl(_PR_SET_SECCOMP, _FILTER, about, 0, 0))


def truncation_filter(machine: int, truncate: int, openat: int, opening: int) -> list[tuple[int, int, int, int]]:
    """Refuses truncate(), and O_TRUNC for reading; what is opened for writing is Landlock's. Steps: code, if so, else, value."""
    both = os.O_TRUNC | os.O_ACCMODE
    return [
        (_LOAD, 0, 0, 4),  # the machine: a program for another one has other numbers
        (_IF_EQUAL, 0, 9, machine),
        (_LOAD, 0, 0, 0),  # the system call
        (_IF_EQUAL, 8, 0, truncate),
        (_IF_EQUAL, 3, 0, openat),
        (_IF_EQUAL, 0, 5, opening),
        (_LOAD, 0, 0, 24),  # flags: its second argument
        (_IF_EQUAL, 1, 1, 0),
        (_LOAD, 0, 0, 32),  # of openat the third
        (_AND, 0, 0, both),
        (_IF_EQUAL, 1, 0, os.O_TRUNC),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
