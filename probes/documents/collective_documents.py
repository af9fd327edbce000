"""A rank's documents about its collectives: NCCL's times, and its position in a stall."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Number, Whole
from .code_places import StackFrame

FlightDump = dict[str, object]  # torch's own document


class TimedRow(TypedDict):
    """`ms`: of all calls together; `ranks`: as torch writes a group's."""

    group: str
    name: str
    bytes: Whole
    calls: Whole
    ms: Number
    least_ms: Number
    ranks: str


class TimedCollectives(TypedDict, total=False):
    """`span_s`: from the first queued call to the last."""

    span_s: Number
    ms: Number
    calls: Whole
    untimed: Whole
    rows: list[TimedRow]


class StandingPlace(TypedDict, total=False):
    """Written by a rank that has been at one place for a while, since `since_ns`."""

    since_ns: Whole
    dumps: list[FlightDump]
    stack: list[StackFrame]
