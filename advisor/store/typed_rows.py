"""Checks the rows of a run file against the types of its schema: SQLite stores anything in any cell, and files get damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.store.document_checks import fitting
from rn50_advisor.advisor.store.schema import TABLES

TIME_MAX = 1 << 61  # ns: wall clocks until 2043; the difference of any two fits into 64 bits
RANK_MAX = 1 << 24
_TYPES: Mapping[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,)}
_NOTES_MAX = 20
_Document = TypeVar("_Document")


class Corrupt(Exception):
    """A value that no advisor wrote; the message says where."""


@cache
def _column_types(table: str) -> Mapping[str, tuple[type, ...]]:
    """Returns the types of the columns by the schema's text. A column without NOT NULL that is not a key may be None."""
    types = {}
    for column in TABLES[table].split(", "):
        name, *words = column.split()
        if words and words[0] in _TYPES:
            null = () if "NOT" in words or "KEY" in words else (type(None),)
            types[name] = (*_TYPES[words[0]], *null)
    return types


def rows(db: sqlite3.Connection, table: str, columns: tuple[str, ...], order: str = "") -> Iterator[tuple[Any, ...]]:
    """Yields all rows of a table after checking each. Raises Corrupt."""
    types = [(name, _column_types(table)[name]) for name in columns]
    for row in db.execute(f"SELECT {', '.join(columns)} FROM {table} {order}"):
        for (name, allowed), value in zip(types, row, strict=True):
            if not isinstance(value, allowed) or (isinstance(value, int) and abs(value) > TIME_MAX):
                raise Corrupt(f"table {table}, row of {columns[0]} {row[0]!r:.40}: {name} is {value!r:.40}")
        yield row


@contextlib.contextmanager
def only_numbers(table: str) -> Iterator[None]:
    """Raises Corrupt if reading a table of numbers into an array fails; such tables have too many rows to check each."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise Corrupt(f"table {table}: not all cells are numbers: {error}") from error


def check_numbers(table: str, rank: int, columns: tuple[str, ...], numbers: NDArray[np.int64]) -> None:
    """Checks one rank's rows. Raises Corrupt for an impossibly large number, an end before its start or a row without steps."""
    beyond = (numbers > TIME_MAX) | (numbers < -TIME_MAX)
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        raise Corrupt(f"table {table}, rank {rank}, row {row}: {columns[column]} is {numbers[row, column]}")
    if {"t_start_ns", "t_end_ns"} <= set(columns):
        start, end = (numbers[:, columns.index(name)] for name in ("t_start_ns", "t_end_ns"))
        if (backwards := end < start).any():
            row = np.argmax(backwards)
            raise Corrupt(f"table {table}, rank {rank}, row {row}: it ends before it begins")
    if "count" in columns and table == "steps" and (none := numbers[:, columns.index("count")] < 1).any():
        raise Corrupt(f"table {table}, rank {rank}, row {np.argmax(none)}: it counts no step")


def check_times(table: str, times: NDArray[np.int64]) -> None:
    if len(times) and (times.max() > TIME_MAX or times.min() < -TIME_MAX):
        raise Corrupt(f"table {table}: a time is {max(times.max(), -times.min())} ns")


class LeftOut:
    """Collects facts and events of an unknown shape: they are left out, and the report says so."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], str] = {}

    def note(self, table: str, name: object, wrong: str) -> None:
        self._notes.setdefault((table, str(name)), wrong)

    def trimmed(self, table: str, row: object, document: Mapping[str, Any], shape: type[_Document]) -> _Document:
        """Returns the document without its invalid entries, and notes the first of them."""
        kept, wrong = fitting(document, shape)
        for words in wrong[:1]:
            self.note(table, row, words)
        return kept

    def gaps(self) -> Iterator[ProbeGap]:
        """Yields one gap per table row or kind of event, up to a bound."""
        for (table, name), wrong in list(self._notes.items())[:_NOTES_MAX]:
            yield ProbeGap(table, name, f"not written by any advisor, and ignored: {wrong}", "is the run file damaged?")
