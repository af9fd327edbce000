"""Other arguments for the job's calls of torch, and calls left out: wrappers that exist only where a request names the callable.

Of a class the constructor is wrapped, so that the class, its subclasses and its pickled objects stay what they are. If torch does not take
the new arguments, the call is made as the job made it, and the change is refused in torch's words.
"""

from __future__ import annotations

import inspect
import itertools
import types
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..patches.wrappers import BuiltIn, asks_dynamo, quietly
from .call_places import CallPlace, class_of_torch
from .torch_names import FoundCallable, callables, plain, replace, value_of
from .trial_request import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder
    from .trial_request import Change, Outcomes

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# What an argument's value excludes: with (name, value) go the others, which a user would remove from the call.
_EXCLUDES = (
    ("num_workers", 0, ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")),
    ("fused", True, ("foreach",)),
    ("foreach", True, ("fused",)),
)
_READ_ONCE = (types.GeneratorType, map, filter, zip, itertools.chain)


class ChangedCall:
    """A `call` or `removal` of a request."""

    def __init__(self, recorder: Recorder, outcomes: Outcomes, index: int, change: Change) -> None:
        self._recorder, self._outcomes, self.index = recorder, outcomes, index
        self._callable = str(change["callable"])
        self._removed = change["kind"] == "removal"
        self._arguments: dict[str, Any] = dict(change.get("arguments") or {})
        self._without = tuple(change.get("without") or ())
        self._place = CallPlace(change.get("file"), change.get("line"))

    def install(self) -> list[Any]:
        """Wraps the callable. Returns the wrappers. Raises Refused if torch has none of this name."""
        found = callables(self._callable)
        if not found:
            raise Refused("this torch has no %s" % self._callable)
        if self._removed and isinstance(found[0].original, type):
            raise Refused("the job needs what %s makes" % self._callable)
        if self._place.file is None and any(each.of_objects for each in found):
            raise Refused("the place of this call of %s is not known" % self._callable)
        return [self._install(each) for each in found]

    def _install(self, found: FoundCallable) -> Any:
        kind = found.original
        if isinstance(kind, type):
            kind.__init__ = self._wrapped(kind.__init__, kind)  # type: ignore[misc]
            return kind.__init__  # type: ignore[misc]
        wrapper = self._wrapped(kind, None, bound=found.bound)
        if inspect.isbuiltin(kind) or isinstance(kind, BuiltIn):
            replace(found, BuiltIn(kind, wrapper, getattr(kind, "__module__", None) or "torch"))
        else:
            replace(found, wrapper)
        return wrapper

    def _wrapped(self, original: Callable[..., Any], kind: type | None, *, bound: bool = False) -> Any:
        recorder = self._recorder
        is_compiling = asks_dynamo(recorder)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or quietly is None:
                return original(*args, **kwargs)
            try:
                own = args[bound:]
                if not quietly(recorder, self._means, kind, args):
                    pass
                elif not self._removed:
                    made, result = self._call(original, args, kwargs)
                    if made:
                        return result
                    args, kwargs = result
                elif own or kwargs:
                    quietly(recorder, self._outcomes.applied, self.index)
                    return own[0] if own else next(iter(kwargs.values()))
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        return wrapper

    def _means(self, kind: type | None, args: tuple[Any, ...]) -> bool:
        """True if this call is to be changed. Workers of loaders run none of the job's own code that sets up its training."""
        if self._recorder.worker is not None:
            return False
        if kind is not None and class_of_torch(args[0]) is not kind:
            return False
        return self._place.is_here()

    def _call(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """(True, result), or (False, the job's own arguments) if torch does not take the new ones."""
        recorder, outcomes = self._recorder, self._outcomes
        (args, kwargs), own = _for_two_calls(args, kwargs)
        try:
            attempts = changed_arguments(original, args, kwargs, self._arguments, self._without)
        except Exception as error:
            quietly(recorder, outcomes.refused, self.index, error)
            return False, own
        failure: Exception | None = None
        for new_args, new_kwargs in attempts:
            try:
                result = original(*new_args, **new_kwargs)
            except Exception as error:
                failure = error
            else:
                quietly(recorder, outcomes.applied, self.index)
                return True, result
        quietly(recorder, outcomes.refused, self.index, failure)
        return False, own


def changed_arguments(
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: dict[str, Any],
    without: tuple[str, ...],
) -> list[Arguments]:
    """The arguments to try in turn. Raises Refused if nothing is left of the change, TypeError if the job's own are wrong."""
    wanted = {name: value_of(value) for name, value in arguments.items()}
    try:
        signature = inspect.signature(plain(original))
    except (TypeError, ValueError):
        return _without_signature(args, kwargs, wanted, without)
    bound = signature.bind(*args, **kwargs)
    parameters = signature.parameters
    rest = next((each.name for each in parameters.values() if each.kind is each.VAR_KEYWORD), None)
    given = {
        **{name: value for name, value in bound.arguments.items() if name != rest},
        **bound.arguments.get(rest or "", {}),
    }
    for name in wanted:
        if name not in parameters and rest is None:
            raise Refused("it has no argument %s" % name)
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    changed = {**{name: value for name, value in given.items() if name not in without}, **wanted}
    _mend(changed, defaults, wanted)
    bound.arguments.clear()
    for name, value in changed.items():
        if name in parameters and name != rest:
            bound.arguments[name] = value
        else:
            bound.arguments.setdefault(rest, {})[name] = value  # type: ignore[arg-type]
    return [(bound.args, bound.kwargs)]


def _mend(changed: dict[str, Any], defaults: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Removes what the new arguments exclude, as a user would. Raises Refused if that is all of the change."""
    for name, value, excluded in _EXCLUDES:
        if name not in defaults or changed.get(name, defaults[name]) is not value:
            continue
        if name not in wanted and name in ("fused", "foreach") and any(wanted.get(each) for each in excluded):
            changed.pop(name)  # the new one excludes the job's own
            continue
        for each in excluded:
            if changed.pop(each, None) and each in wanted and set(wanted) <= set(excluded):
                raise Refused("%s has no effect with %s=%r" % (each, name, value))


def _without_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], wanted: dict[str, Any], without: tuple[str, ...]
) -> list[Arguments]:
    """Arguments of a function in C: by name, or its only one by position."""
    kept = {name: value for name, value in kwargs.items() if name not in without}
    attempts: list[Arguments] = [(args, {**kept, **wanted})]
    if len(wanted) == 1 and len(args) + len(kept) <= 1:
        attempts.append(((next(iter(wanted.values())),), {}))
    return attempts


def _for_two_calls(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Arguments, Arguments]:
    """The arguments twice, for a call and, if it fails, a second one."""
    pairs = [_twice(each) for each in args]
    named = {name: _twice(value) for name, value in kwargs.items()}
    first, second = tuple(each[0] for each in pairs), tuple(each[1] for each in pairs)
    return (first, {name: each[0] for name, each in named.items()}), (
        second,
        {name: each[1] for name, each in named.items()},
    )


def _twice(value: Any) -> tuple[Any, Any]:
    """An iterator is read once. Torch writes into an optimizer's groups, so these are copied for the second call, not for the first."""
    if isinstance(value, _READ_ONCE):
        first, second = itertools.tee(value)
        return first, second
    if type(value) is not list or not value or type(value[0]) is not dict:
        return value, value
    copies = []
    for group in value:
        copies.append(dict(group))
        for name, entry in copies[-1].items():
            if isinstance(entry, _READ_ONCE):
                group[name], copies[-1][name] = itertools.tee(entry)
    return value, copies
