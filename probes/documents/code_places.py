"""Places in code, for stacks and facts."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Whole


class StackFrame(TypedDict):
    function: str
    file: str
    line: Whole


class UserLine(StackFrame, total=False):
    """The innermost line of the user's code. `text` is absent if the file may be on a dead server."""

    text: str


class CodePlace(TypedDict, total=False):
    file: str
    line: Whole
