"""LOP008, the loop prepares its batches itself: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import host_rule_cases as host_jobs
from rn50_advisor.advisor.model.findings import Clear, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT
from rule_runs import RULES, found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "LOP008",
    host_jobs.lop008,
    lines={"preparing": ({"spends": 0.05}, {"spends": 0.0499})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a forward pass that is as long as usual, without a profile": {"seen": False, "forward": 0.33},
    },
    severities=waits("spends"),
    where=Where(SCRIPT, 57),
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop008_says_which_line_and_how_many_workers_that_takes() -> None:
    finding = found("LOP008", TABLE.job())
    assert finding.title == "Batch preparation in the training loop" and finding.scope.ranks == ()
    assert "train.py:57 in train" in finding.evidence[1].note
    assert "1 worker or more (num_workers=1)" in finding.fixes[0].change
    assert "2 workers or more" in found("LOP008", TABLE.job(making=0.6)).fixes[0].change


@pytest.mark.parametrize(("samples", "worst"), [(80, 0.75), (16, 0.625)])
def test_lop008_promises_by_the_samples_and_at_worst_a_quarter_less(samples: int, worst: float) -> None:
    saving = found("LOP008", TABLE.job(samples=samples)).saving
    error = 1.5 / samples**0.5
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.2 * worst)
    assert saving.speedup[1] == pytest.approx(warm(1 / (1 - 0.2 * (1 + error))))


def test_lop008_promises_what_the_cores_carry() -> None:
    """A step of one second with this much compute on all cores; where all are busy, the line itself must cost less."""
    saving = found("LOP008", TABLE.job(computed=1.8)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.9, warm(1 / 0.9)))
    full = found("LOP008", TABLE.job(computed=2.0))
    assert "make this line cheaper" in full.fixes[0].title
    assert full.saving is not None and full.saving.speedup == pytest.approx((1.0, 1 / 0.8))


def test_lop008_does_not_know_what_workers_would_cost_without_a_loader() -> None:
    given = TABLE.job()
    values = {key: value for key, value in given.values.items() if key[0] != "loader.workers"}
    finding = found("LOP008", replace(given, values=values))
    assert "what the loop iterates over" in finding.fixes[0].title
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 1 / 0.8))


def test_lop008_is_about_the_rank_that_does_and_gains_what_the_others_need_less() -> None:
    finding = found("LOP008", TABLE.job(alone=True))
    assert finding.title.endswith(" on rank 1") and finding.scope.ranks == (1,)
    assert finding.saving is not None and finding.saving.seconds_per_step[1] == pytest.approx(0.2, abs=0.04)


def test_lop008_is_not_measured_if_a_long_forward_pass_was_not_profiled() -> None:
    result = run_rule(RULES["LOP008"], host_jobs.lop008(seen=False), Config())
    assert result == NotMeasured("LOP008", ("step.preparing_s",))
    without_loader = host_jobs.lop008(seen=False)
    values = {key: value for key, value in without_loader.values.items() if key[0] != "loader.workers"}
    assert run_rule(RULES["LOP008"], replace(without_loader, values=values), Config()) == Clear("LOP008")
