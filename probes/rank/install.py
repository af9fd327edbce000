"""Called once, when the job has imported torch."""

from __future__ import annotations

import atexit
import sys
import types
from functools import partial
from typing import TYPE_CHECKING, Any

from . import ptrace
from .comm import collective_marks
from .hidden_frames import passed_over
from .patches import foreign_loaders, torch_patches
from .recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def install(folder: str, after: Callable[[str, Callable[[], None]], Any]) -> None:
    """`after(name, callback)` makes a finder that calls back once a module has been imported."""
    for function in _functions([]):
        function.__code__ = passed_over(function.__code__)
    ptrace.let_owner_look(folder)
    torch = sys.modules["torch"]
    recorder = Recorder(torch, folder)
    wrappers = torch_patches.apply(torch, recorder)
    wrappers += torch_patches._quietly(recorder, collective_marks.install, recorder) or []
    torch_patches._quietly(recorder, foreign_loaders.install, recorder, after)
    for module, name in torch_patches.SAVERS:
        sys.meta_path.insert(0, after(module, partial(torch_patches.save_of_library, recorder, module, name)))
    atexit.register(recorder.leave)  # also of what never trains: how it failed

    def hide() -> None:
        skip = sys.modules["torch._dynamo.eval_frame"].skip_code
        for code in own_code(wrappers):
            skip(code)

    if "torch._dynamo.eval_frame" in sys.modules:
        hide()
    else:
        sys.meta_path.insert(0, after("torch._dynamo.eval_frame", hide))


def own_code(wrappers: list[Any]) -> Iterator[types.CodeType]:
    """The code of everything that may run between the job's frames: dynamo must not take it for frames of the job to compile."""
    for function in _functions(wrappers):
        yield from _with_inner(function.__code__)


def _functions(wrappers: list[Any]) -> Iterator[types.FunctionType]:
    """The recorder's own, methods too."""
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
    """Wrappers that are made later are among the constants of the function that makes them."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


_FOLDER = __file__.rpartition("/")[0]
