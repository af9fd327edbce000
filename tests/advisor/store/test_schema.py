"""The tables of a run file follow the layout of the rings' records."""

from __future__ import annotations

import sqlite3

import pytest

from rn50_advisor.advisor.store.schema import (
    BESIDE,
    INDEXES,
    LATER_COLUMNS,
    LATER_TABLES,
    RECORD_COLUMNS,
    RING_TABLES,
    TABLES,
    cells_beside,
)
from rn50_advisor.probes.rank.layout import FIELDS, FLAG_BITS


@pytest.mark.parametrize(
    ("table", "pid", "cells"),
    [("steps", None, (9, 1)), ("batches", 77, (77, 9)), ("spans", None, (9,)), ("looks", 77, (9,))],
)
def test_a_record_is_stored_with_what_stands_beside_its_fields(
    table: str, pid: int | None, cells: tuple[int | None, ...]
) -> None:
    assert cells_beside(table, 9, pid) == cells
    assert len(cells) == len(BESIDE[table])


def test_a_row_of_several_steps_is_stored_with_their_number() -> None:
    assert cells_beside("steps", 9 | 41 << FLAG_BITS, None) == (9, 42)


def test_each_kind_of_record_has_a_table_with_a_column_for_each_field() -> None:
    assert set(RING_TABLES) == set(FIELDS)
    db = sqlite3.connect(":memory:")
    for table, columns in TABLES.items():
        db.execute(f"CREATE TABLE {table} ({columns})")
    for kind, table in RING_TABLES.items():
        found = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        assert found == ["rank", *BESIDE[table], *FIELDS[kind]] == list(RECORD_COLUMNS[table])
    db.close()


def test_what_came_later_and_what_is_indexed_are_tables_and_columns() -> None:
    assert set(TABLES) >= LATER_TABLES
    for table, columns in LATER_COLUMNS.items():
        assert set(columns) <= set(RECORD_COLUMNS[table])
    for table, column in INDEXES.items():
        assert f"{column} " in TABLES[table]
