"""Installs the recorder. Called once, after the job has imported torch."""

from __future__ import annotations

import atexit
import os
import sys
import types
from functools import partial
from typing import TYPE_CHECKING, Any

from .comm import collective_patches
from .hidden_frames import passed_over
from .patches import dispatched_batches, foreign_loaders, torch_patches
from .patches.wrappers import quietly
from .recorder import Recorder
from .side_files import TRIAL_REQUEST
from .signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .trials.rank_trial import RankTrial

_RELATIVES_ONLY = "1"  # 0 needs no permission; with 2 and 3 no process can grant one
_PR_SET_PTRACER = 0x59616D61
_SWITCH = "RN50_ADVISOR_NO_PTRACE"


# Lets the advisor inspect this process where yama restricts ptrace to ancestors: py-spy is a child of the advisor, not of ours.
#
# The permission names the launcher, which the agent belongs to; yama extends it to all its descendants, including the job's processes:
# they may inspect each other, as they may without yama. `RN50_ADVISOR_NO_PTRACE=1` prevents it, at the cost of the lines of code in
# hangs and gaps. It is a variable and not an option so that every process inherits it, however it was started.
#
# A process has one such permission. It is granted when torch is imported, and immediately in every forked child, so that a later grant
# by the job (to its own debugger or a crash reporter) replaces it.
def permit_inspection(folder: str, root: str = "/") -> None:
    """Permits the advisor to inspect this process. Raises no exception of its own.

    `folder`: the advisor's ring folder, whose name identifies the advisor's process.
    """
    try:
        allow = permission(folder, root)
        if allow is not None:
            allow()
            os.register_at_fork(after_in_child=allow)
    except Exception:
        reraise_signal_exception()  # the refusal of py-spy is then reported as a gap


def permission(folder: str, root: str = "/") -> Callable[[], Any] | None:
    """A function that permits the advisor to inspect this process; None if it needs no permission or is not visible from here."""
    if os.environ.get(_SWITCH) or _read(root, "proc/sys/kernel/yama/ptrace_scope").strip() != _RELATIVES_ONLY:
        return None
    pid, start_ticks = os.path.basename(folder).split("-")[2:4]
    # the advisor may have died, and another process in the job's container may have its pid
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


def install(folder: str, after: Callable[[str, Callable[[], None]], Any], affinity: Any = None) -> Recorder:
    """Installs the recorder and returns it. `after(name, callback)` makes a finder that calls back once the module has been imported.

    `affinity`: what the finders have seen of the process's cores.
    """
    trial = _trial(folder)
    for function in _functions([]):
        function.__code__ = passed_over(function.__code__)
    permit_inspection(folder)
    torch = sys.modules["torch"]
    recorder = Recorder(torch, folder)
    recorder.affinity = affinity
    wrappers: list[Any] = []
    if trial is not None:
        recorder.trial = trial(recorder)
        wrappers += quietly(recorder, recorder.trial.install) or []
    wrappers += torch_patches.apply(torch, recorder)
    wrappers += quietly(recorder, collective_patches.install, recorder) or []
    quietly(recorder, foreign_loaders.install, recorder, after)
    quietly(recorder, dispatched_batches.install, recorder, after)
    for module, name in torch_patches.SAVERS:
        sys.meta_path.insert(0, after(module, partial(torch_patches.save_of_library, recorder, module, name)))
    atexit.register(recorder.leave)  # also records the failure of processes that never train

    def hide() -> None:
        skip = sys.modules["torch._dynamo.eval_frame"].skip_code
        for code in own_code(wrappers):
            skip(code)

    if "torch._dynamo.eval_frame" in sys.modules:
        hide()
    else:
        sys.meta_path.insert(0, after("torch._dynamo.eval_frame", hide))
    return recorder


def _trial(folder: str) -> type[RankTrial] | None:
    """Imported only if changes are to be tried. This look at the folder is all that it costs other jobs."""
    if not os.path.lexists(os.path.join(folder, TRIAL_REQUEST)):
        return None
    try:
        from .trials.rank_trial import RankTrial
    except Exception:
        reraise_signal_exception()
        return None  # the facts have no `trial` then
    return RankTrial


def own_code(wrappers: list[Any]) -> Iterator[types.CodeType]:
    """Our code objects that may run between the job's frames; dynamo must not compile them."""
    for function in _functions(wrappers):
        yield from _with_inner(function.__code__)


def _functions(wrappers: list[Any]) -> Iterator[types.FunctionType]:
    """The recorder's own functions and methods."""
    package = __name__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if name.startswith(package + "."):
            wrappers = [*wrappers, *vars(module).values()]
    for value in wrappers:
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            function = getattr(member, "__func__", member)
            if isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(_FOLDER):
                yield function


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and its nested code, which belongs to wrappers created later."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


_FOLDER = __file__.rpartition("/")[0]
