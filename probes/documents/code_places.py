"""Places in code, for stacks and facts."""

from __future__ import annotations

from typing import Literal, TypedDict

from .bounded_numbers import Whole

CollectionWork = Literal[
    "permutes",
    "copies",
    "grows",
    "shifts",
    "searches",
    "walks",
    "converts",
    "weighs",
    "excludes",
    "scans",
    "slices",
    "gathers",
]
ReadWhole = Literal["archive", "array", "dataset", "file"]


class StackFrame(TypedDict):
    function: str
    file: str
    line: Whole


class CollectionCall(TypedDict):
    """A call whose cost grows with a whole collection. `kind`: what it does with it; `call`: its name."""

    kind: CollectionWork
    call: str


class WholeRead(TypedDict):
    """A read of a whole array, data set or file for each item, which is a part of it. `call`: its name."""

    kind: ReadWhole
    call: str


class UserLine(StackFrame, total=False):
    """The innermost line of the user's code. `text` is absent if the file may be on a dead server."""

    text: str
    collection: CollectionCall


class CodePlace(TypedDict, total=False):
    file: str
    line: Whole
