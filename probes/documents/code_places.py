"""Places in code, as stacks and facts name them."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Whole


class StackFrame(TypedDict):
    function: str
    file: str
    line: Whole


class UserLine(StackFrame, total=False):
    """The innermost line of the user's own. Its text is not read where its file may lie on a dead server."""

    text: str


class CodePlace(TypedDict, total=False):
    file: str
    line: Whole
