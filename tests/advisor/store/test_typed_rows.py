"""Cells that no advisor wrote are refused with their place, or left out and reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rn50_advisor.advisor.store.schema import TABLES
from rn50_advisor.advisor.store.typed_rows import (
    TIME_MAX,
    Corrupt,
    LeftOut,
    check_numbers,
    check_times,
    only_numbers,
    rows,
)
from rn50_advisor.probes.documents.event_documents import StallEnd

COLUMNS = ("step", "t_start_ns", "t_end_ns", "count")


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """Without types: SQLite keeps anything in any cell."""
    db = sqlite3.connect(":memory:")
    for table, columns in TABLES.items():
        names = [column.split()[0] for column in columns.split(", PRIMARY")[0].split(", UNIQUE")[0].split(", ")]
        db.execute(f"CREATE TABLE {table} ({', '.join(names)})")
    yield db
    db.close()


POSITION = ("rank", "phase", "step", "since_ns")


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ((0, "forward", 7, 5), None),
        ((0, "", -1, -TIME_MAX), None),
        ((0, b"forward", 7, 5), "phase is b'forward'"),
        ((0, "forward", "7", 5), "step is '7'"),
        ((0, "forward", 7.5, 5), "step is 7.5"),
        ((0, "forward", None, 5), "step is None"),
        ((0, "forward", 7, TIME_MAX + 1), f"since_ns is {TIME_MAX + 1}"),
        (("x" * 100, "forward", 7, 5), "rank is 'xxx"),
    ],
)
def test_a_cell_of_another_type_is_named_with_its_row(
    db: sqlite3.Connection, row: tuple[Any, ...], wrong: str | None
) -> None:
    db.execute("INSERT INTO positions VALUES (?, ?, ?, ?)", row)
    if wrong is None:
        assert list(rows(db, "positions", POSITION)) == [row]
        return
    with pytest.raises(Corrupt) as caught:
        list(rows(db, "positions", POSITION))
    assert str(caught.value).startswith("table positions, row of rank ")
    assert wrong in str(caught.value)
    assert len(str(caught.value)) < 200


def test_only_what_the_schema_allows_may_be_missing(db: sqlite3.Connection) -> None:
    columns = ("t_ns", "kind", "pid", "rank", "data")
    db.execute("INSERT INTO events VALUES (9, 'death', NULL, NULL, '{}')")
    assert list(rows(db, "events", columns)) == [(9, "death", None, None, "{}")]
    db.execute("INSERT INTO samples VALUES (9, 1, 5)")  # a whole number is a number
    assert list(rows(db, "samples", ("t_ns", "metric", "value"))) == [(9, 1, 5)]
    db.execute("INSERT INTO events VALUES (9, NULL, 1, 1, '{}')")
    with pytest.raises(Corrupt, match="kind is None"):
        list(rows(db, "events", columns))


def test_rows_come_in_the_order_that_is_asked_for(db: sqlite3.Connection) -> None:
    for rank in (2, 0, 1):
        db.execute("INSERT INTO positions VALUES (?, 'gap', 1, 1)", (rank,))
    assert [row[0] for row in rows(db, "positions", ("rank",), "ORDER BY rank")] == [0, 1, 2]


@pytest.mark.parametrize("values", [["x"], [None], [1 << 70]])
def test_what_makes_no_array_of_numbers_is_refused(values: list[Any]) -> None:
    with pytest.raises(Corrupt, match="table steps: not all cells are numbers"), only_numbers("steps"):
        np.array([tuple(values)], dtype=[("step", np.int64)])


@pytest.mark.parametrize(
    ("table", "row", "wrong"),
    [
        ("steps", (5, 10, 20, 1), None),
        ("steps", (5, 10, 10, 3), None),
        ("steps", (5, 20, 10, 1), "row 1: it ends before it begins"),
        ("steps", (5, 10, 20, 0), "row 1: it counts no step"),
        ("steps", (5, 10, TIME_MAX + 1, 1), f"row 1: t_end_ns is {TIME_MAX + 1}"),
        ("steps", (-TIME_MAX - 1, 10, 20, 1), f"row 1: step is {-TIME_MAX - 1}"),
        ("collectives", (5, 10, 20, 0), None),
    ],
)
def test_numbers_that_cannot_be_are_named_with_rank_and_row(
    table: str, row: tuple[int, ...], wrong: str | None
) -> None:
    numbers = np.array([(4, 0, 10, 1), row], np.int64)
    if wrong is None:
        check_numbers(table, 3, COLUMNS, numbers)
        return
    with pytest.raises(Corrupt) as caught:
        check_numbers(table, 3, COLUMNS, numbers)
    assert str(caught.value) == f"table {table}, rank 3, {wrong}"


def test_an_empty_table_is_sound() -> None:
    check_numbers("steps", 0, COLUMNS, np.zeros((0, len(COLUMNS)), np.int64))
    check_times("samples", np.zeros(0, np.int64))


@pytest.mark.parametrize("time", [TIME_MAX + 1, -TIME_MAX - 1])
def test_times_beyond_all_clocks_are_refused(time: int) -> None:
    check_times("samples", np.array([0, TIME_MAX, -TIME_MAX], np.int64))
    with pytest.raises(Corrupt, match="table samples: a time is"):
        check_times("samples", np.array([0, time], np.int64))


def test_what_was_left_out_is_reported_once_for_each_row_and_with_a_bound() -> None:
    left = LeftOut()
    kept = left.trimmed("events", "stall_end", {"id": "stall-1", "stalled_s": "long"}, StallEnd)
    assert kept == {"id": "stall-1"}
    assert left.trimmed("events", "stall_end", {"id": "stall-2", "stalled_s": []}, StallEnd) == {"id": "stall-2"}
    (gap,) = left.gaps()
    assert (gap.metric, gap.scope) == ("events", "stall_end")
    assert "stalled_s" in gap.reason and gap.reason.startswith("not written by any advisor, and ignored: ")
    for pid in range(100):
        left.note("facts", pid, "x")
    assert len(list(left.gaps())) == 20


def test_what_fits_is_no_gap() -> None:
    left = LeftOut()
    assert left.trimmed("events", "stall_end", {"id": "s", "stalled_s": 3.0}, StallEnd) == {"id": "s", "stalled_s": 3.0}
    assert list(left.gaps()) == []
