"""CMP005, the batch is too small for the GPU: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_cases import SCRIPT
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP005",
    pace_jobs.cmp005,
    lines={
        "gain": ({"fixed": 0.3334}, {"fixed": 0.333}),
        "memory": ({"peak": 0.45}, {"peak": 0.4501}),
        "activity": ({"active": 0.6}, {"active": 0.6001}),
    },
    false_alarms={
        "loading is the limit": {"loads": 1.0},
        "a full GPU": {"active": 0.95},
        "busy tensor cores": {"active": None, "tensor": 0.61},
        "busy memory": {"active": 0.5, "dram": 0.9},
        "a sweep that is flat already": {"rates": {8: 100, 16: 119, 32: 119}},
        "a sweep that falls": {"rates": {4: 90, 8: 100, 16: 80}},
        "larger ones did not fit": {"rates": {4: 60, 8: 100, 16: 160}, "oom_at": 16},
    },
    severities=(({}, "critical"), ({"fixed": 0.4}, "high"), ({"fixed": 0.6, "loads": 1 / 0.9}, "medium")),
    where=Where(SCRIPT, 42),
    best=({"peak": 0.2}, 1 / 0.55),
    also_fires={
        "unknown SM activity": {"active": None},
        "tensor cores and memory with spare capacity": {"tensor": 0.2, "dram": 0.3},
        "as a sweep has it": {"rates": {8: 100, 16: 121}},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp005_asks_for_as_much_as_fits() -> None:
    assert found("CMP005", TABLE.job()).fixes[0].change == "DataLoader(..., batch_size=16)"
    assert found("CMP005", TABLE.job(peak=0.2)).fixes[0].change == "DataLoader(..., batch_size=32)"
    assert "4 times" in found("CMP005", TABLE.job(peak=0.2)).fixes[0].title


def test_cmp005_speaks_of_the_loaders_batch_where_a_step_has_several() -> None:
    small = pace_jobs.cmp005()
    several = {**small.values, **{("step.batches", n): 4.0 for n in (0, 1)}}
    assert found("CMP005", replace(small, values=several)).fixes[0].change == "DataLoader(..., batch_size=4)"


def test_cmp005_explains_a_gpu_that_waits_for_launches() -> None:
    small, waiting = pace_jobs.cmp005(), pace_jobs.cmp003(paced_s=0.3)
    both = replace(waiting, values={**waiting.values, **small.values}, loaders=small.loaders)
    causes = {f.rule: f.explained_by for f in judge(both, all_rules(), Config()).findings}
    assert causes == {"CMP005": None, "CMP003": "CMP005"}


def test_cmp005_pays_the_exchange_of_gradients_once_for_the_larger_batch() -> None:
    alone, together = pace_jobs.cmp005(), pace_jobs.cmp005()
    assert alone.model is not None
    wired = replace(together, model=replace(alone.model, wire_s=0.2, step_s=1.2))
    best = found("CMP005", wired).saving
    plain = found("CMP005", alone).saving
    assert best is not None and plain is not None
    # twice the batch: half of the exchange for as many samples
    assert best.seconds_per_step[1] == pytest.approx(plain.seconds_per_step[1] + 0.1)


@pytest.mark.parametrize(
    ("given", "advised", "speedup"),
    [
        pytest.param({"rates": {8: 100, 16: 160, 32: 130}}, 16, 1.6, id="the rate falls at four times"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}}, 32, 2.4, id="it goes on rising"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 168}}, 16, 1.6, id="the smallest near the best"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 169}}, 32, 1.69, id="just beyond it"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}, "oom_at": 32}, 16, 1.6, id="four times did not fit"),
        pytest.param({"rates": {8: 100, 16: 160, 32: 240}, "peak": 0.3}, 16, 1.6, id="nor in this job's memory"),
        pytest.param({"rates": {4: 50, 12: 150, 24: 250}}, 24, 2.5, id="between two sizes"),
    ],
)
def test_cmp005_advises_what_a_sweep_measured(given: dict[str, Any], advised: int, speedup: float) -> None:
    finding = found("CMP005", TABLE.job(**{"peak": 0.2, **given}))
    assert finding.fixes[0].change == f"DataLoader(..., batch_size={advised})"
    assert finding.saving is not None and finding.saving.speedup[1] == pytest.approx(speedup)
    note = finding.evidence[0].note
    assert f"batches of {advised} as with 8 (a benchmark of this machine" in note and "instead of 100" in note


def test_cmp005_takes_the_line_where_no_rank_was_swept() -> None:
    swept = pace_jobs.cmp005(peak=0.2, rates={8: 100, 16: 160, 32: 130})
    one = replace(swept, batch_curves={0: swept.batch_curves[0]})
    assert found("CMP005", one).evidence[0].metric == "batch.fixed_share"
