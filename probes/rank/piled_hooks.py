"""Counts hooks that pile up: the same function registered more than once on one module, tensor or optimizer, as in each step of a loop.
Handlers of loggers count as hooks.

Different hooks of one kind share a module only if several tools watch it; their number stays. Objects of the job are only read.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections import Counter
from typing import TYPE_CHECKING, Any

from .signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..documents.rank_documents import PiledHooks
    from .facts.precision_facts import CalledModel
    from .facts.process_facts import Facts

    Place = tuple[str, types.CodeType]  # the method that registers such hooks, and the hook's own code

HOOKS_MAX = 20_000  # 0.3 us each
PLACES_MAX = 4
READINGS_MAX = 32
# Registries, by the method that adds to them.
OF_MODULES = (
    ("register_forward_hook", "_forward_hooks"),
    ("register_forward_pre_hook", "_forward_pre_hooks"),
    ("register_full_backward_hook", "_backward_hooks"),
    ("register_full_backward_pre_hook", "_backward_pre_hooks"),
)
OF_TENSORS = (
    ("register_hook", "_backward_hooks"),
    ("register_post_accumulate_grad_hook", "_post_accumulate_grad_hooks"),
)
OF_OPTIMIZERS = (
    ("register_step_pre_hook", "_optimizer_step_pre_hooks"),
    ("register_step_post_hook", "_optimizer_step_post_hooks"),
)
OF_LOGGERS = "addHandler"


class HookCounts:
    """Of the models, optimizers and loggers of one process. `models`, `optimizers`: those that are known now."""

    def __init__(
        self, facts: Facts, models: Callable[[], list[CalledModel]], optimizers: Callable[[], Iterable[Any]]
    ) -> None:
        self._facts = facts
        self._models = models
        self._optimizers = optimizers
        self._readings: dict[Place, list[list[int]]] = {}
        self._failed = False

    def count(self, step: int) -> None:
        """Adds a reading, at most one for each step. An error ends the counts."""
        if self._failed:
            return
        try:
            self._add(step, self._repeated())
        except Exception as error:  # a registry of another torch, or one that changes meanwhile
            reraise_signal_exception()
            self._failed = True
            self._facts.miss("hooks: %s" % type(error).__name__)

    def _add(self, step: int, repeated: Counter[Place]) -> None:
        for place, count in repeated.items():
            readings = self._readings.setdefault(place, [])
            if readings and readings[-1][0] == step:
                readings[-1][1] = count
            else:
                readings.append([step, count])
            if len(readings) > READINGS_MAX:
                del readings[1]
        most = sorted(repeated, key=lambda place: -repeated[place])[:PLACES_MAX]
        if most:
            self._facts.values["piled_hooks"] = [self._described(place) for place in most]

    def _described(self, place: Place) -> PiledHooks:
        kind, code = place
        return {
            "kind": kind,
            "function": getattr(code, "co_qualname", code.co_name),  # Python 3.11
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "counts": self._readings[place],
        }

    def _repeated(self) -> Counter[Place]:
        """How many hooks are registered beyond the first of the same code on the same object."""
        found: Counter[Place] = Counter()
        left = HOOKS_MAX
        for kind, hooks in self._registries():
            codes = Counter(code for hook in hooks if (code := _code_of(hook)) is not None)
            for code, count in codes.items():
                if count > 1:
                    found[kind, code] += count - 1
            left -= len(hooks)
            if left < 0:
                break
        return found

    def _registries(self) -> Iterator[tuple[str, list[Any]]]:
        """Yields the hooks of one kind of one object, where there are several."""
        torch = sys.modules["torch"]
        plain = (torch.Tensor, torch.nn.Parameter)  # a subclass may run the job's code
        models = [model for called in self._models() if (model := called.of()) is not None]
        for module in (module for model in models for module in torch.nn.Module.modules(model)):
            yield from _several(module.__dict__, OF_MODULES)
        for logger in [logging.root, *list(logging.root.manager.loggerDict.values())]:
            handlers = getattr(logger, "handlers", ())  # a name without a logger has none
            if len(handlers) > 1:
                yield OF_LOGGERS, [type(handler).emit for handler in handlers]
        for optimizer in self._optimizers():
            yield from _several(optimizer.__dict__, OF_OPTIMIZERS)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if type(parameter) in plain:
                        known = {name: getattr(parameter, name, None) for _, name in OF_TENSORS}
                        yield from _several(known, OF_TENSORS)


def _several(known: dict[str, Any], registries: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, list[Any]]]:
    for kind, name in registries:
        hooks = known.get(name)
        if hooks is not None and len(hooks) > 1:
            yield kind, list(hooks.values())


def _code_of(hook: Any) -> types.CodeType | None:
    """The code that a hook runs; None if it is not Python's."""
    while True:
        if isinstance(hook, functools.partial):
            hook = hook.func
        elif isinstance(hook, types.MethodType):
            hook = hook.__func__
        elif isinstance(hook, types.FunctionType):
            return hook.__code__
        else:
            return getattr(type(hook).__call__, "__code__", None)
