"""Replacements in the job's objects while one sample is profiled: lists that record the progress of their iteration, and descriptors or
methods in transform classes. `undo` restores everything.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame
from ..signal_exceptions import reraise_signal_exception
from . import sample_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .sample_profiles import BatchProfile


class Indices(list):  # type: ignore[type-arg]
    """The indices that the fetcher iterates over, unchanged."""

    __slots__ = ("place", "profile")
    profile: BatchProfile
    place: int

    def __iter__(self) -> Iterator[Any]:
        return self.profile.walk_samples(list.__iter__(self), self.place)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(list.__iter__(self)),)


class StepList(list):  # type: ignore[type-arg]
    __slots__ = ("profile",)
    profile: BatchProfile

    def __iter__(self) -> Iterator[Any]:
        return self.profile.walk_steps(list.__iter__(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(list.__iter__(self)),)  # a copy belongs to the job, so it is a plain list


class StepTuple(tuple):  # type: ignore[type-arg]
    profile: BatchProfile

    def __iter__(self) -> Iterator[Any]:
        return self.profile.walk_steps(tuple.__iter__(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return tuple, (list(tuple.__iter__(self)),)


class _Attribute:
    """A class-level descriptor over an instance attribute. Each access calls `reading(item, value)`.

    `replaces`: the access calls `reading(value)` and returns its result.
    """

    def __init__(
        self, name: str, profile: BatchProfile, reading: Callable[..., Any], *, replaces: bool = False
    ) -> None:
        self._name = name
        self._profile = profile
        self._reading = reading
        self._replaces = replaces

    def __get__(self, item: Any, owner: Any = None) -> Any:
        if item is None:
            raise AttributeError("type object '%s' has no attribute '%s'" % (owner.__name__, self._name))
        try:
            value = item.__dict__[self._name]
        except KeyError:
            raise AttributeError("'%s' object has no attribute '%s'" % (type(item).__name__, self._name)) from None
        if not self._profile.watches():
            return value
        try:
            result = self._reading(value) if self._replaces else self._reading(item, value)
        except Exception:
            reraise_signal_exception()
            return value
        return result if self._replaces else value

    def __set__(self, item: Any, value: Any) -> None:
        item.__dict__[self._name] = value

    def __delete__(self, item: Any) -> None:
        del item.__dict__[self._name]


def walks_one_by_one(dataset: Any) -> bool:
    """True if a batch's samples are loaded one by one while iterating over the indices, also by torch's own Subset.

    Tests like the fetcher does afterwards, since a wrapper may forward attribute lookups to its dataset.
    """
    torch = sys.modules["torch"]
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    for _ in range(4):  # a Subset of a Subset
        together = getattr(dataset, "__getitems__", None)
        if not together:
            return True
        if getattr(together, "__func__", None) is not torch.utils.data.Subset.__getitems__:
            return False
        dataset = sample_parts.own(together.__self__).get("dataset")
    return False


def install(profile: BatchProfile, undo: list[Callable[[], None]], dataset: Any, makes: Any) -> None:
    found = sample_parts.datasets(dataset)
    several = sample_parts.containers(found)
    lists = {type(item): None for item in several if not sample_parts.is_sequential(item)}
    lists.update(dict.fromkeys(sample_parts.known_containers()))
    for owner in lists:
        _stand_in(undo, owner, "transforms", _Attribute("transforms", profile, profile.hand_out, replaces=True))
    sequences: list[Any] = list({type(item) for item in several if sample_parts.is_sequential(item)})
    for owner in sequences:
        watched = {id(item) for item in several if type(item) is owner}
        undo.append(put(owner, "__iter__", _walked(profile, owner.__iter__, watched)))
    for each in found:
        if sample_parts.is_folder(each):
            for name, reading in (
                ("loader", profile.loads),
                ("transform", profile.transforms),
                ("target_transform", profile.labels),
            ):
                _stand_in(undo, type(each), name, _Attribute(name, profile, reading))
        else:
            _single(profile, undo, sample_parts.own(each).get("transform"))


def _single(profile: BatchProfile, undo: list[Callable[[], None]], transform: Any) -> None:
    """Times a transform that is a single object with its own `__call__`."""
    owner = type(transform)
    call = next((vars(base)["__call__"] for base in owner.__mro__ if "__call__" in vars(base)), None)
    # a static method has another signature, and a C method has no code
    written = isinstance(call, FunctionType) and not owner.__module__.startswith("torch.jit")
    if not written or owner.__module__ in ("builtins", "functools") or sample_parts.steps_of(transform) is not None:
        return
    profile.names.number(transform, sample_parts.TRANSFORM)  # read now: its place is the original method's
    undo.append(put(owner, "__call__", _timed(profile, call, transform)))


def _timed(profile: BatchProfile, original: Any, watched: Any) -> Any:
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        timed = self is watched and profile.watches()
        depth = len(profile.stack)
        if timed:
            profile.enter(depth, self, sample_parts.TRANSFORM)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if timed and profile.open:
                profile.leave(depth)

    return __call__


def _walked(profile: BatchProfile, original: Any, watched: set[int]) -> Any:
    def __iter__(self: Any) -> Any:
        steps = original(self)
        return profile.walk_steps(steps) if id(self) in watched and profile.watches() else steps

    return __iter__


def _stand_in(undo: list[Callable[[], None]], owner: type, name: str, attribute: _Attribute) -> None:
    """Sets the descriptor, unless the class has such an attribute, which would be the job's."""
    if not any(name in vars(base) for base in owner.__mro__):
        undo.append(put(owner, name, attribute))


def put(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Sets an attribute. Returns a function that restores the original, unless the job has replaced the attribute meanwhile."""
    own, before = name in vars(owner), vars(owner).get(name)

    def put_back() -> None:
        if vars(owner).get(name) is not value:
            return
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    setattr(owner, name, value)
    return put_back
