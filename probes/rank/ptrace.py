"""Lets the advisor look into this process where yama lets only ancestors do so: py-spy is a child of the advisor, not of ours.

The permission names the launcher, which the agent belongs to; yama takes it for all processes below that one as well, the job's own among
them: each may look into the others, as each may without yama. `RN50_ADVISOR_NO_PTRACE=1` keeps it from being given, which costs the lines
of code that hangs and gaps are told with. A variable and no option: it comes to each process by itself, however that was started.

A process has one such permission. It is given when torch is imported, and at once in every child that is forked, so that what the job
gives later (to its own debugger, or a crash reporter) stands.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from .wall import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable

_RELATIVES_ONLY = "1"  # with 0 nobody need ask, with 2 and 3 no process can let another one look
_PR_SET_PTRACER = 0x59616D61
_SWITCH = "RN50_ADVISOR_NO_PTRACE"


def let_owner_look(folder: str, root: str = "/") -> None:
    """`folder`: the advisor's ring folder, whose name says which process it is. Raises nothing of its own."""
    try:
        allow = permission(folder, root)
        if allow is not None:
            allow()
            os.register_at_fork(after_in_child=allow)
    except Exception:
        let_pass()  # that py-spy is refused then is told as a gap


def permission(folder: str, root: str = "/") -> Callable[[], Any] | None:
    """What gives the advisor the permission; None where it needs none, or is no process that can be seen from here."""
    if os.environ.get(_SWITCH) or _read(root, "proc/sys/kernel/yama/ptrace_scope").strip() != _RELATIVES_ONLY:
        return None
    pid, start_ticks = os.path.basename(folder).split("-")[2:4]
    # it may have died, and in a container of the job's another process has its number
    if _read(root, "proc/%s/stat" % pid).rpartition(")")[2].split()[19:20] != [start_ticks]:
        return None
    import ctypes

    return partial(ctypes.CDLL(None).prctl, _PR_SET_PTRACER, int(pid), 0, 0, 0)


def _read(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), errors="replace") as file:
            return file.read()
    except OSError:
        return ""
