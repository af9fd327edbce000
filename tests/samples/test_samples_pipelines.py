"""The pipelines that the forecast over worker counts is held against: what is compared, and what the table says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from samples.pipelines import table
from samples.pipelines.__main__ import main
from samples.pipelines.catalogue import PIPELINES
from samples.pipelines.measure import Row, choose_workers, forecast_at
from samples.pipelines.table import cells, headline, markdown, read_json, write_json

MACHINE = {"date": "2026-01-01", "cores": 2, "memory_gib": 8, "python": "3.11", "torch": "2.15", "kernel": "6"}
GOOD = Row(
    "a", "files", 0, 2, advised=True, verdict="DAT003", rate_before=50.0, predicted=(90.0, 110.0), measured=100.0
)
HIGH = Row("b", "noise", 1, 3, verdict="DAT004", rate_before=50.0, predicted=(110.0, 130.0), measured=100.0)
NONE = Row("c", "disk", 1, skipped="root is needed")


def report(measured: int, knee: int) -> dict[str, Any]:
    points = [{"workers": n, "samples_per_s": [10.0 * n, 11.0 * n]} for n in range(5)]
    return {"worker_curve": {"measured": measured, "knee": knee, "points": points}}


def test_the_second_run_has_the_advised_workers_or_another_point_of_the_curve() -> None:
    pipeline = PIPELINES[0]
    assert choose_workers(report(0, 3), pipeline) == (3, True)
    assert choose_workers(report(2, 2), pipeline) == (pipeline.otherwise, False)
    assert choose_workers({"worker_curve": None}, pipeline) == (pipeline.otherwise, False)
    assert forecast_at(report(0, 3), 3) == (30.0, 33.0) and forecast_at(report(0, 3), 9) is None


def test_the_headline_counts_what_was_measured() -> None:
    assert (GOOD.ratio, GOOD.inside, HIGH.ratio, HIGH.inside) == (pytest.approx(1.0), True, pytest.approx(1.2), False)
    line = headline([GOOD, HIGH, NONE])[0]
    assert line.startswith("2 pipelines: the prediction is off by 10% in the median, 20% at most; 1 of 2")
    near = replace(GOOD, measured=112.0)
    assert (near.inside, near.held, HIGH.held) == (False, True, False)
    assert "1 of 2 measurements inside the predicted interval, 2 give or take 5%" in headline([GOOD, near])[0]
    assert "| 112 | 0.89 | within 5% |" in markdown([near], MACHINE)
    assert headline([NONE]) == ["Nothing was measured."]


def test_the_table_tells_advice_from_other_points_and_why_a_row_is_missing() -> None:
    shown = markdown([GOOD, HIGH, NONE], MACHINE)
    assert "| a | files | DAT003 | 0 → 2 | 50 | 90–110 | 100 | 1.00 | yes |" in shown
    assert "| b | noise | DAT004 | 1 → 3 (curve) |" in shown and "- c: root is needed" in shown


def test_rows_of_several_days_say_so_whatever_day_the_table_is_made_on() -> None:
    old, new = replace(GOOD, date="2025-12-30", advisor="abc"), replace(HIGH, date="2025-12-31", advisor="def")
    assert "2025-12-30 to 2025-12-31: 2 cores" in markdown([new, old], MACHINE)
    assert "Advisor: several: def (1 runs), abc (1 runs)." in markdown([new, old], MACHINE)
    assert "2025-12-30: 2 cores" in markdown([old], MACHINE) and "Advisor: abc." in markdown([old], MACHINE)


def test_rows_survive_their_file(tmp_path: Path) -> None:
    write_json(tmp_path / "rows.json", [GOOD, NONE])
    assert read_json(tmp_path / "rows.json") == [GOOD, NONE] and read_json(tmp_path / "no.json") == []


def test_at_least_six_pipelines_of_both_kinds_of_work_are_there() -> None:
    assert len({p.name for p in PIPELINES}) == len(PIPELINES) >= 6
    assert {p.job.ranks for p in PIPELINES} == {0, 2}
    assert all(p.otherwise != p.workers for p in PIPELINES)
    assert PIPELINES[0].with_workers(3).arguments[-1] == "--workers=3"


def test_list_names_all_and_only_knows_its_names() -> None:
    listed = CliRunner().invoke(main, ["--list"])
    assert listed.exit_code == 0 and len(listed.output.splitlines()) == len(PIPELINES)
    assert CliRunner().invoke(main, ["--only", "nothing-like-it"]).exit_code == 2


def test_published_forecasts_are_near_what_came() -> None:
    """Within 15 % in the median, over at least six pipelines."""
    rows = read_json(Path(table.__file__).with_name("results.json"))
    off = sorted(abs(row.ratio - 1) for row in rows if row.ratio is not None)
    assert len(off) >= 6 and off[len(off) // 2] <= 0.15
    published = (Path(table.__file__).parents[1] / "PIPELINES.md").read_text()
    assert all("| " + " | ".join(cells(row)) + " |" in published for row in rows)
