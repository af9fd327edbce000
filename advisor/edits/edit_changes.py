"""The two ways in which a file is changed: a literal, or the arguments of a call."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from rn50_advisor.advisor.edits.calls import Argument


@dataclass(frozen=True, slots=True)
class NewLiteral:
    """A new value for a literal."""

    node: ast.expr
    value: str


@dataclass(frozen=True, slots=True)
class NewArguments:
    """Arguments of a call that are set (`put`), added at its end, and removed."""

    node: ast.Call
    put: tuple[tuple[Argument, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()


Change = NewLiteral | NewArguments
