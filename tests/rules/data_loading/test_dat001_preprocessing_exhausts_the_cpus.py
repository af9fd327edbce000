"""DAT001, preprocessing exhausts the CPUs: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import input_rule_cases as input_jobs
import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE, SCRIPT, WAIT, dat001
from rule_runs import RULES, best_step_s, found
from rule_table import Table, waits
from table_checks import Check, checks

SQUEEZED = {"allowed": 2.0, "workers": 1, "wall": 0.95}  # another worker would fit


TABLE = Table(
    "DAT001",
    jobs.dat001,
    lines={
        **WAIT,
        "computing": ({"cpu": 0.7, "delay": 0.0}, {"cpu": 0.699, "delay": 0.0}),
        "spare_share": ({"busy": 13.61}, {"busy": 13.59}),
        "spare_cores": ({"allowed": 2.0, "busy": 1.51}, {"allowed": 2.0, "busy": 1.49}),
        "busy": ({**SQUEEZED, "busy": 1.6, "working": 0.849}, {**SQUEEZED, "busy": 1.6, "working": 0.85}),
        "gain": (
            {**SQUEEZED, "busy": 1.6, "working": 0.95, "wall": 2.02},
            {**SQUEEZED, "busy": 1.6, "working": 0.95, "wall": 2.01},
        ),
        "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
        "workers_share": ({"wait": 0.03, "crowd": 0.4, "wall": 1.5}, {"wait": 0.03, "crowd": 0.4, "wall": 1.49}),
    },
    false_alarms={
        "threads that crowd each other beside workers with little to do": {"wait": 0.03, "crowd": 0.4, "wall": 0.1},
        "a neighbour takes the cores": {"wait": 0.03, "crowd": 0.15, "others": 8.0},
        "one worker at its limit, idle cores beside it": {"workers": 1, "busy": 3.0},
        "a quota looks like idle cores": {"busy": 2.0},
        "workers blocked on reads": {"cpu": 0.3, "delay": 0.0},
        "a wait for batches that are made already": {"wait": 0.07, "handed": 0.06},
        "loading in the training process": {"workers": 0},
    },
    severities=waits("wait"),
    where=LINE,
    best=({"wait": 0.4}, 1 / 0.6),
    also_fires={
        "waiting for a core counts as computing": {"cpu": 0.4, "delay": 0.4},
        "a step that computes on the same cores waits for them, not for input": {"wait": 0.01, "crowd": 0.4},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def stacks(seen: int, looks: int, **more: Any) -> Analysis:
    made = input_jobs.sample(0.1)
    return dat001(sample=replace(made, lines=(SampleLine("blur", "/job/data.py", 21, seen, looks),)), **more)


def test_exhausted_cpus_are_traced_to_the_line_where_samples_are_made() -> None:
    finding = found("DAT001", stacks(18, 20))
    assert finding.fixes[0].where == Where("/job/data.py", 21)
    assert any("blur (data.py:21)" in e.note for e in finding.evidence)


@pytest.mark.parametrize(("seen", "looks"), [(13, 20), (5, 5)])
def test_few_stacks_or_stacks_all_over_name_no_line(seen: int, looks: int) -> None:
    assert found("DAT001", stacks(seen, looks)).fixes[0].where == Where(SCRIPT, 42)


def test_a_faster_decoder_is_advised_for_images_alone() -> None:
    samples = input_jobs.sample(0.1)
    pictures, rows = (replace(samples, width=width, height=width) for width in (400.0, None))
    assert "simplejpeg" in found("DAT001", dat001(sample=pictures)).fixes[0].change
    for finding in (found("DAT001", dat001(sample=rows)), found("DAT001", dat001(sample=None))):
        assert "jpeg" not in finding.fixes[0].change and "tokenising" in finding.fixes[0].change
        assert finding.fixes[-1].title == "more CPU cores per rank"


def test_dat001_advises_fewer_workers_if_they_are_as_fast() -> None:
    """Eight workers a rank on two cores; one of them would do as well, for the cores would be as full."""
    crowded = {"allowed": 2.0, "busy": 2.0, "workers": 8, "wall": 8.0, "cpu": 0.05, "delay": 0.95}
    *_, fewer, cores = found("DAT001", TABLE.job(**crowded)).fixes
    assert fewer.title == "num_workers=8 → 1: as fast, with less memory" and fewer.effort == "one line"
    assert fewer.change.startswith("DataLoader(..., num_workers=1):") and "7 processes" in fewer.change
    assert cores.title.startswith("more CPU cores")
    assert not any(
        "num_workers" in fix.title for fix in found("DAT001", TABLE.job(**{**crowded, "workers": 1, "wall": 1.0})).fixes
    )
    assert not any("num_workers" in fix.title for fix in found("DAT001", TABLE.job()).fixes), (
        "four that all have to work"
    )


def test_starting_workers_is_no_preprocessing() -> None:
    several = jobs.dat001(wait=0.4)
    values = {**several.values, **{("step.epoch_start_s", n): 0.3 for n in (0, 1)}}
    finding = found("DAT001", replace(several, values=values))
    assert finding.seconds_per_step == pytest.approx(0.1)
    assert best_step_s(finding) == pytest.approx(0.9)


def test_dat001_blames_no_workers_for_waits_that_neighbours_may_have_caused() -> None:
    crowded = jobs.dat001(wait=0.01, crowd=0.4)
    assert isinstance(run_rule(RULES["DAT001"], crowded, Config()), Finding)
    assert isinstance(run_rule(RULES["DAT001"], jobs.without(crowded, "cpu.other_cores"), Config()), Clear)


def test_a_quota_that_is_used_up_leaves_no_core_for_more_workers() -> None:
    within = jobs.dat001()
    about = {"cpu.job_cores": 15.9, "cpu.host_busy_cores": 20.0, "cpu.host_cores": 64.0}
    used_up = replace(within, values={**within.values, **{(name, "job"): value for name, value in about.items()}})
    rows = {e.metric: e for e in found("DAT001", used_up).evidence}
    assert rows["cpu.job_cores"].value == 15.9 and "of 16 allowed" in rows["cpu.job_cores"].note


def test_dat001_gives_back_waits_for_a_core_where_they_are_and_waits_for_input_apart_from_them() -> None:
    """A thread that waits for a batch does not wait for a core: of a second, 0.4 s of input wait and 0.3 s of run-queue
    delay leave 0.3 s at best.
    """
    saving = found("DAT001", jobs.dat001(wait=0.4, crowd=0.3, wall=6.0)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.65, 1 / 0.3))


def test_dat001_goes_by_idle_cores_without_a_forecast() -> None:
    squeezed = jobs.dat001(allowed=2.0, workers=1, wall=0.95, busy=1.6, working=0.95)
    assert run_rule(RULES["DAT001"], squeezed, Config()) == Clear("DAT001"), "another worker helps"
    assert isinstance(run_rule(RULES["DAT001"], replace(squeezed, forecast=None), Config()), Finding)
