"""CMP004, the host waits for the GPU every step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pace_rule_cases as pace_jobs
from pace_rule_cases import stepped_by
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.findings import Finding, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.causes import is_cause
from rn50_advisor.rules.registry import all_rules
from rule_cases import SCRIPT
from rule_runs import RULES, all_words, found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP004",
    pace_jobs.cmp004,
    lines={
        "calls": ({"calls": 0.5}, {"calls": 0.4999}),
        "cost": ({"gap": 0.02}, {"gap": 0.0199}),
    },
    false_alarms={
        "one wait at the log line": {"calls": 0.0, "blocked": 0.0},
        "compute covers it": {"gap": 0.001},
        "the GPU waits for a slow loader": {"gap": 0.001, "fetch": 0.3, "loads": 1.0},
        "the time between steps is the loop's own": {"blocked": 0.001},
        "in a deep window, too": {"blocked": 0.01, "gap": 0.5, "deep": 0.5, "held": 0.01},
        "a deep window that timed no wait": {"blocked": 0.01, "gap": 0.5, "deep": 0.5},
    },
    severities=(
        ({"gap": 0.3}, "critical"),
        ({"gap": 0.15}, "high"),
        ({"gap": 0.05}, "medium"),
        ({"gap": 0.04}, "low"),
    ),
    where=Where(SCRIPT, 88),
    best=({"gap": 0.3, "blocked": 0.2}, 1 / 0.8),
    also_fires={
        "the fetch would overlap with compute": {"gap": 0.0, "fetch": 0.1, "loads": 2.0},
        "as a deep window has it": {"blocked": 0.01, "deep": 0.1, "held": 0.1},
        "unknown places": {"call_sites": CallSites()},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp004_names_the_costliest_places_first() -> None:
    finding = found("CMP004", TABLE.job())
    assert ".item() at train.py:88 (400 ms)" in all_words(finding)
    assert finding.fixes[0].where is not None and finding.fixes[0].where.line == 88


def test_cmp004_names_no_place_that_a_trace_does_not_know() -> None:
    made = TABLE.job()
    known = tuple(replace(wait, file="", line=0) for wait in made.call_sites.waits)
    words = all_words(found("CMP004", replace(made, call_sites=replace(made.call_sites, waits=known))))
    assert ".item() (400 ms)" in words and " at :0" not in words


def test_cmp004_needs_three_sampled_steps() -> None:
    assert run_rule(RULES["CMP004"], pace_jobs.cmp004(looks=2), Config()) == NotMeasured("CMP004", ("sync.looks",))
    assert isinstance(run_rule(RULES["CMP004"], pace_jobs.cmp004(looks=3), Config()), Finding)


@pytest.mark.parametrize(
    ("name", "capability", "words"),
    [
        ("AdamW", 7.5, ["AdamW(..., fused=True)"]),
        ("AdamW", 8.0, ["AdamW(..., fused=True)", "bfloat16"]),
        ("LBFGS", 8.0, ["bfloat16"]),
        ("LBFGS", 7.5, ["none for this optimizer"]),
    ],
)
def test_cmp004_avoids_the_gradient_scalers_wait_as_the_job_can(name: str, capability: float, words: list[str]) -> None:
    sites = CallSites(pace_jobs.waits(through="torch.amp.grad_scaler", line=91, phase="optimizer"))
    made = pace_jobs.cmp004(rank_facts=stepped_by(name), call_sites=sites)
    known = replace(made, values={**made.values, ("precision.capability", 0): capability})
    change = found("CMP004", known).fixes[0].change
    assert [
        word for word in ("AdamW(..., fused=True)", "bfloat16", "none for this optimizer") if word in change
    ] == words


@pytest.mark.parametrize(
    ("call", "words"),
    [("__bool__", "comparison"), ("__repr__", "printing a tensor"), ("synchronize", "CUDA events")],
)
def test_cmp004_calls_each_wait_by_its_name(call: str, words: str) -> None:
    assert words in all_words(found("CMP004", TABLE.job(call_sites=CallSites(pace_jobs.waits(call=call)))))


def test_cmp004_counts_what_launches_after_the_wait_may_take_the_gpu() -> None:
    """Where launches and kernels take nearly the same, a queue would hide the passes that the host paces."""
    found_ = found("CMP004", TABLE.job(gap=0.01, blocked=0.3, host_paced=0.25))
    saving = found_.saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.9975, 1 / 0.79), rel=0.001)
    assert found_.severity == "medium" and "launches" in all_words(found_)
    short = found("CMP004", TABLE.job(gap=0.01, blocked=0.1, host_paced=0.25)).saving
    assert short is not None and short.speedup[1] == pytest.approx(1 / 0.9), "no more than the host was blocked"


def test_cmp004_gains_no_more_than_the_host_was_blocked() -> None:
    saving = found("CMP004", TABLE.job(gap=0.3, blocked=0.1)).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.9)


@pytest.mark.parametrize("deep", [None, 0.5])
def test_cmp004_leaves_the_loops_work_after_a_short_wait_to_lop004(deep: float | None) -> None:
    line = HotLine(SCRIPT, 95, "train", "sleep", 100, 0.5, False)
    busy = pace_jobs.cmp004(gap=0.5, blocked=0.01, deep=deep, held=deep and 0.01, hot_lines=(line,))
    assert [f.rule for f in judge(busy, all_rules(), Config()).findings if f.explained_by is None] == ["LOP004"]


@pytest.mark.parametrize(("waits_s", "explained"), [(0.11, True), (0.09, False)])
def test_cmp004_explains_launch_overhead_only_where_it_costs_most_of_it(waits_s: float, explained: bool) -> None:
    job = TABLE.job()
    waits = replace(found("CMP004", job), seconds_per_step=waits_s)
    launches = replace(found("CMP003", pace_jobs.cmp003()), seconds_per_step=0.2)
    assert is_cause(job, waits, launches) is explained
