"""Statements that a user would put before the first step: made in a running rank, and taken back.

Only calls of torch, of `gc` and of the process's affinity are made, and attributes set under `torch.backends`.
"""

from __future__ import annotations

import gc
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from .torch_names import named, plain, value_of
from .trial_request import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .trial_request import Change

    Undo = Callable[[], Any]

_SETTABLE = "torch.backends."
_AFFINITY = "os.sched_setaffinity"
_TASKS = "/proc/self/task"
_FLUSH = "torch.set_flush_denormal"
# These concern what is made after them, models or threads: they are made when torch has been imported.
_EARLY = (_FLUSH, "torch.set_default_dtype")
_ONLY_BY_RESTART = "only by a restart: %s"


class SetupStatements:
    """A `setup` of a request. `early`: it has to be made when torch has been imported."""

    def __init__(self, torch: Any, change: Change) -> None:
        self._torch = torch
        self._statements: list[dict[str, Any]] = list(change["statements"])
        # names of settings, what reads each, and what that read right after the statement
        self._left: list[tuple[str, Callable[[], Any], Any]] = []
        self.early = any(each.get("call") in _EARLY for each in self._statements)

    def make(self, *, undone: bool = False) -> list[Undo]:
        """Makes the statements. Returns functions that take them back, to be called in reverse; all or none is made.

        `undone`: refuses a statement that cannot be taken back. Raises whatever torch raises, or Refused.
        """
        undo: list[Undo] = []
        self._left.clear()
        try:
            for statement in self._statements:
                self._make(statement, undo, undone)
        except BaseException:
            take_back(undo)
            raise
        return undo

    def verify(self) -> None:
        """Raises Refused if a setting is not what the statements made it: the job itself sets it in each step, say."""
        for name, read, left in self._left:
            if read() != left:
                raise Refused("the job sets it again itself, after %s" % name)

    def _note(self, name: str, read: Callable[[], Any]) -> None:
        self._left.append((name, read, read()))

    def _make(self, statement: dict[str, Any], undo: list[Undo], undone: bool) -> None:
        if "assign" in statement:
            target = str(statement["assign"])
            owner, attribute = _settable(target)
            undo.append(_assign(owner, attribute, value_of(statement["value"])))
            self._note(target, lambda: getattr(owner, attribute))
            return
        name = str(statement["call"])
        positional = [value_of(each) for each in statement.get("positional") or ()]
        arguments = {key: value_of(value) for key, value in (statement.get("arguments") or {}).items()}
        if name == _AFFINITY:
            undo.append(_set_affinity(*positional, **arguments))
            return
        function = plain(named(name))
        inverse = _INVERSES.get(name)
        if undone and inverse is None:
            raise Refused(_ONLY_BY_RESTART % ("%s cannot be taken back" % name))
        taken_back = inverse(self._torch) if inverse is not None and undone else None
        function(*positional, **arguments)
        if name in _SETTINGS:
            self._note(name, partial(_SETTINGS[name], self._torch))
        if taken_back is not None:
            undo.append(taken_back)


def take_back(undo: list[Undo]) -> None:
    """Calls all of them, the latest first, and empties the list. Raises the first exception."""
    failure: BaseException | None = None
    while undo:
        try:
            undo.pop()()
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _settable(target: str) -> tuple[Any, str]:
    """The object and the name of its attribute. Raises Refused for any other place."""
    if not target.startswith(_SETTABLE):
        raise Refused("%s is not under %s" % (target, _SETTABLE[:-1]))
    above, _, name = target.rpartition(".")
    owner = named(above)
    if not hasattr(owner, name):
        raise Refused("this torch has no %s" % target)
    return owner, name


def _assign(owner: Any, name: str, value: Any) -> Undo:
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def _set_affinity(pid: int, cores: Any) -> Undo:
    """Sets it for all threads: those that compute exist by now, and would otherwise have got it from the thread that started them."""
    if pid != 0:
        raise Refused("the affinity of another process")
    before = {}
    for task in map(int, os.listdir(_TASKS)):
        try:
            before[task] = os.sched_getaffinity(task)
            os.sched_setaffinity(task, cores)
        except ProcessLookupError:
            before.pop(task, None)  # it has ended

    def put_back() -> None:
        for task, own in before.items():
            try:
                os.sched_setaffinity(task, own)
            except ProcessLookupError:
                pass

    return put_back


def _threads(torch: Any) -> Undo:
    before = torch.get_num_threads()
    return lambda: plain(torch.set_num_threads)(before)


def _flush_denormal(torch: Any) -> Undo:
    if torch.get_num_threads() > 1:  # measured: the other half of a large tensor keeps its denormal numbers
        raise Refused(_ONLY_BY_RESTART % "the other compute threads would keep their mode")
    return lambda: plain(torch.set_flush_denormal)(False)


def _matmul_precision(torch: Any) -> Undo:
    before = torch.get_float32_matmul_precision()
    return lambda: torch.set_float32_matmul_precision(before)


def _detect_anomaly(torch: Any) -> Undo:
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    return lambda: torch.autograd.set_detect_anomaly(*before)


def _frozen(torch: Any) -> Undo:
    if gc.get_freeze_count():
        raise Refused(_ONLY_BY_RESTART % "the job has frozen objects of its own")
    return gc.unfreeze


def _threshold(torch: Any) -> Undo:
    before = gc.get_threshold()
    return lambda: gc.set_threshold(*before)


# What reads the setting, by the name of the call that changes it.
_SETTINGS: dict[str, Callable[[Any], Any]] = {
    "torch.set_num_threads": lambda torch: torch.get_num_threads(),
    "torch.set_float32_matmul_precision": lambda torch: torch.get_float32_matmul_precision(),
    "torch.autograd.set_detect_anomaly": lambda torch: torch.is_anomaly_enabled(),
    "gc.set_threshold": lambda torch: gc.get_threshold(),
}
# Functions that read the state and return one that restores it, by the name of the call that changes it.
_INVERSES: dict[str, Callable[[Any], Undo]] = {
    "torch.set_num_threads": _threads,
    _FLUSH: _flush_denormal,
    "torch.set_float32_matmul_precision": _matmul_precision,
    "torch.autograd.set_detect_anomaly": _detect_anomaly,
    "gc.freeze": _frozen,
    "gc.set_threshold": _threshold,
    "gc.collect": lambda torch: lambda: None,
}
