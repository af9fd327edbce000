"""Numbers by which objects of the job are known for as long as they live."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any


class Numbers:
    """By identity: an object of the job may compare as it likes, and need have no hash. Nothing is kept alive."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def get(self, item: Any) -> int:
        """-1 of an object that has none."""
        known = self._known.get(id(item))
        return known[1] if known is not None and known[0]() is item else -1

    def put(self, item: Any, number: int) -> None:
        key, known = id(item), self._known
        try:
            # in C: what a signal's handler raises in a callback of a reference is lost
            known[key] = weakref.ref(item, partial(known.pop, key)), number
        except TypeError:
            pass  # a list, say: nobody would tell when it is gone
