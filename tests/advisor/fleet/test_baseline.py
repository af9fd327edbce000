"""Baselines that bad machines do not shift, and those kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet_samples import many, results_of, triage
from rn50_advisor.advisor.fleet.baseline import iterative_baseline, load, save
from rn50_advisor.advisor.fleet.fleet_ranking import rank
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.fleets import render


@pytest.mark.parametrize(
    ("values", "better", "expected"),
    [
        ([100.0] * 9 + [50.0], "higher", 100.0),
        ([100.0] * 5 + [90.0, 50.0], "higher", 100.0),  # 90 is dropped only once 50 is gone
        ([10.0] * 9 + [20.0], "lower", 10.0),
        ([100.0, 97.0, 103.0], "higher", 100.0),
        ([100.0, 80.0], "higher", 100.0),  # of two the better one
        ([0.0, 0.0], "lower", 0.0),
        ([7.0], "higher", 7.0),
    ],
)
def test_a_baseline_is_made_without_those_below_it(values: list[float], better: Any, expected: float) -> None:
    assert iterative_baseline(values, better) == pytest.approx(expected)


def test_a_stored_baseline_judges_a_single_machine(tmp_path: Path) -> None:
    save(tmp_path / "b.json", many(20).baselines)
    stored = load(tmp_path / "b.json")
    alone = rank(results_of(triage("new", {"memory.copy_gb_per_s": 12.0})), stored=stored)
    assert [machine.worst for machine in alone.outliers] == ["memory.copy_gb_per_s"]
    assert rank(results_of(triage("new")), stored=stored).outliers == ()
    assert (
        rank(results_of(triage("new", gpu="Tesla T4", values={"memory.copy_gb_per_s": 1.0})), stored=stored).outliers
        == ()
    )


@pytest.mark.parametrize(("machines", "few"), [(3, True), (5, True), (6, False), (20, False)])
def test_a_stored_baseline_of_few_machines_judges_nobody_and_says_so(tmp_path: Path, machines: int, few: bool) -> None:
    save(tmp_path / "b.json", many(machines).baselines)
    alone = rank(results_of(triage("new", {"memory.copy_gb_per_s": 1.0})), stored=load(tmp_path / "b.json"))
    assert bool(alone.outliers) == (not few)
    assert any(f"of {machines} machines" in note and "outlier" in note for note in alone.notes) == few
    assert not few or any("stored baselines" in line for line in render(alone, "text").splitlines())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "rn50-advisor/baseline/1", "baselines": [{}]}'])
def test_any_other_file_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(AdvisorError):
        load(tmp_path / "b.json")
