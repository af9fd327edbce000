"""Rows of the runs list: cells within the width, filter, order, and what is read of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from rn50_advisor.advisor.store.run_rows import RunRow
from rn50_advisor.advisor.tui.runs.listed_runs import (
    ORDERS,
    ListedRun,
    ListState,
    about_lines,
    age,
    head_line,
    keeps_run,
    listed,
    run_line,
    short_command,
    short_name,
)
from store_rows import T0_NS
from written_runs import written_run

NOW = 2_000_000.0
SLOW = ListedRun(
    RunRow(
        "20250101-000000-slow", "/runs/20250101-000000-slow", "bottleneck", "DAT003", "Batches are loaded in the step",
        1.8, (1.5, 2.1), 120.0, NOW - 7300, 65.0, 2_000_000,
    ),
    "torchrun --nproc_per_node=2 train.py --epochs 5",
    2,
)  # fmt: skip
FAST = ListedRun(
    RunRow(
        "20250102-000000-fast",
        "/runs/fast",
        "healthy",
        None,
        "Compute-bound",
        None,
        None,
        300.0,
        NOW - 60,
        20.0,
    ),
    "python train.py",
    1,
)
NEW = ListedRun(RunRow("20250103-000000", "/runs/new", "not judged", started_unix_s=NOW - 5, duration_s=3.0))
BROKEN = ListedRun(RunRow("broken", "/runs/broken", "unreadable", title="not an SQLite database"))
ALL = {str(run.folder): run for run in (SLOW, FAST, NEW, BROKEN)}


@pytest.mark.parametrize("run", ALL.values(), ids=lambda run: run.row.state)
@pytest.mark.parametrize("width", [40, 78, 118, 198])
@pytest.mark.parametrize("marked", [False, True])
def test_a_line_is_as_wide_as_the_columns_names(run: ListedRun, width: int, marked: bool) -> None:
    drawn = run_line(run, width=width, now_unix_s=NOW, marked=marked).plain
    assert cell_len(drawn) == cell_len(head_line(width, "gain").plain)
    if width >= 78:
        assert cell_len(drawn) <= width


def test_a_line_tells_the_verdict_by_glyph_and_word() -> None:
    lines = [run_line(run, width=118, now_unix_s=NOW, marked=False).plain for run in ALL.values()]
    for drawn, words in zip(
        lines,
        (
            ("slow", "2 h", "▲ DAT003", "1.8×", "120", " 2 ", "1m 05s", "train.py --epochs 5"),
            ("fast", "1 min", "✔ healthy", "300", "20.0 s", "train.py"),
            ("20250103-000000", "now", "– not judged"),
            ("broken", "✖ unreadable"),
        ),
        strict=True,
    ):
        assert all(word in drawn for word in words), (drawn, words)
    assert run_line(SLOW, width=78, now_unix_s=NOW, marked=True).plain.startswith("● slow")


def test_the_lines_below_the_list_give_title_gain_command_and_folder() -> None:
    text = "\n".join(line.plain for line in about_lines(SLOW, 100))
    for part in ("▲ BOTTLENECK", "DAT003 Batches are loaded in the step", "1.5–2.1×", SLOW.command, SLOW.row.path):
        assert part in text
    assert all(cell_len(line.plain) <= 60 for run in ALL.values() for line in about_lines(run, 60))


@pytest.mark.parametrize(
    ("order", "first"), [("age", NEW), ("gain", SLOW), ("samples/s", FAST), ("duration", SLOW), ("run", NEW)]
)
def test_the_largest_or_newest_comes_first_and_unknown_values_last(order: str, first: ListedRun) -> None:
    shown = ListState(dict(ALL), order=order).shown()
    assert shown[0] == first and order in ORDERS
    assert order == "run" or shown[-1].row.state in ("unreadable", "not judged")


@pytest.mark.parametrize(
    ("needle", "kept"), [("dat003", True), ("epochs slow", True), ("bottleneck", True), ("healthy", False), ("", True)]
)
def test_the_filter_looks_at_name_command_verdict_and_rule(needle: str, kept: bool) -> None:
    assert keeps_run(needle, SLOW) == kept


def test_marked_runs_are_chosen_oldest_first_and_else_the_one_under_the_cursor() -> None:
    state = ListState(dict(ALL), selected=str(NEW.folder))
    assert state.chosen() == [NEW]
    state.marked = {str(FAST.folder), str(SLOW.folder), "/runs/gone"}
    assert state.chosen() == [SLOW, FAST]


@pytest.mark.parametrize(
    ("name", "short"),
    [("20250101-000000-a-b", "a-b"), ("20250101-000000", "20250101-000000"), ("my-own-run-of-20250101", "my-own-run-of-20250101")],
)  # fmt: skip
def test_a_name_without_its_time(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("torchrun --nproc_per_node=2 src/train.py --lr 1", "train.py --lr 1"),
        ("python -m pkg.train", "python -m pkg.train"),
        ("", ""),
    ],
)
def test_a_command_begins_with_its_script(command: str, short: str) -> None:
    assert short_command(command) == short


def test_an_age_has_one_unit() -> None:
    assert [age(1e6, 1e6 - s) for s in (5, 90, 7200, 200_000)] == ["now", "1 min", "2 h", "2 d"]
    assert age(1e6, None) == "–"


def test_a_run_is_listed_with_its_command_and_without_an_analysis(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "20250101-000000-a", argv=["python", "a b.py"], ended_ns=T0_NS + 10**9)
    run = listed(folder)
    assert (run.command, run.ranks, run.row.state, run.final) == ("python 'a b.py'", None, "not judged", False)
    (folder / "run.sqlite").write_bytes(b"x" * 200)
    broken = listed(folder)
    assert (broken.row.state, broken.command, broken.final) == ("unreadable", "", True)
