"""A rank's documents about its collectives: NCCL's times, and its position in a stall."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Number, Whole
from .code_places import StackFrame

FlightDump = dict[str, object]  # torch's own document


class TimedRow(TypedDict):
    """`ms`: sum over all calls; `ranks`: the group's ranks as torch writes them."""

    group: str
    name: str
    bytes: Whole
    calls: Whole
    ms: Number
    least_ms: Number
    ranks: str


class TimedCollectives(TypedDict, total=False):
    """`span_s`: time from the first queued call to the last."""

    span_s: Number
    ms: Number
    calls: Whole
    untimed: Whole
    rows: list[TimedRow]


class StalledPosition(TypedDict, total=False):
    """The position of a rank that has been at one place since `since_ns`."""

    since_ns: Whole
    dumps: list[FlightDump]
    stack: list[StackFrame]
