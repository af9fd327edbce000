"""DAT007, workers cost more than they save: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import input_rule_cases as input_jobs
import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Fix, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE, SCRIPT
from rule_runs import RULES, best_step_s, found, warm_step_s
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "DAT007",
    input_jobs.dat007,
    lines={
        "input_wait": ({"wait": 0.05, "wall": 0.01}, {"wait": 0.0499, "wall": 0.01}),
        "hand_over": ({"wall": 0.4003}, {"wall": 0.4005}),  # a fifth of it was spent in line for a core
    },
    false_alarms={
        "workers that are too slow": {"wall": 1.2},
        "loading in the training process": {"workers": 0},
        "several batches a step, each worth its worker": {"wall": 0.15, "batches": 4.0},
        "workers that wait for cores which other processes keep busy": {"wall": 1.0, "delay": 0.8, "others": 12.0},
    },
    severities=(
        ({"wait": 0.325}, "critical"),
        ({"wait": 0.324}, "high"),
        ({"wait": 0.181}, "high"),
        ({"wait": 0.18}, "medium"),
    ),
    where=LINE,
    best=({}, 1 / 0.604814854),  # 0.6394 s, with the caches warm
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def beside(others: float, *, busy: float, job_cores: float = 0.5) -> Analysis:
    """On two cores, of which other processes and all processes keep so many busy."""
    made = input_jobs.dat007(delay=0.0)
    values = {
        "cpu.allowed_cores": 2.0,
        "cpu.job_cores": job_cores,
        "cpu.host_busy_cores": busy,
        "cpu.other_cores": others,
    }
    return replace(made, values={**made.values, **{(name, "job"): value for name, value in values.items()}})


@pytest.mark.parametrize(
    ("others", "busy"), [(0.0, 0.5), (1.0, 1.5), (1.5, 1.79)], ids=["alone", "a core is idle", "a fifth is idle"]
)
def test_other_processes_that_leave_a_core_cost_nothing(others: float, busy: float) -> None:
    alone, near = (found("DAT007", each) for each in (input_jobs.dat007(delay=0.0), beside(others, busy=busy)))
    assert near.saving == alone.saving


def test_beside_other_processes_a_job_gets_no_more_of_the_cores_than_now() -> None:
    alone = found("DAT007", beside(0.0, busy=0.5)).saving
    slow = found("DAT007", beside(0.4, busy=2.0, job_cores=1.6)).saving
    assert alone is not None and slow is not None
    best_s = 1.0 - alone.seconds_per_step[1]
    assert 1.0 - slow.seconds_per_step[1] == pytest.approx(max(best_s, 0.8 * best_s / 0.8))
    assert 1.0 - slow.seconds_per_step[0] == pytest.approx(1.25 * best_s / 0.8)
    starved = run_rule(RULES["DAT007"], beside(1.6, busy=2.0, job_cores=0.4), Config())
    assert starved == Clear("DAT007"), "without workers a step would take as long"


def test_dat007_gives_back_at_best_what_workers_keep_the_training_thread_waiting() -> None:
    waited = input_jobs.dat007(delay=0.0)
    values = {**waited.values, **{("step.run_delay_s", n): 0.2 for n in (0, 1)}}
    late = jobs.played(replace(waited, values=values))
    assert best_step_s(found("DAT007", waited)) == pytest.approx(warm_step_s(0.0494 + 0.6))
    assert best_step_s(found("DAT007", late)) == pytest.approx(
        warm_step_s(0.0494 + 0.4)
    )  # 0.2 of 0.6 s were spent in line


def test_dat007_gives_back_at_best_what_shared_memory_costs_inside_the_kernel() -> None:
    busy = input_jobs.dat007(delay=0.0)
    kernel = {"fetch.system_share": 0.4, "step.system_s": 0.1}
    values = {**busy.values, **{(name, n): v for name, v in kernel.items() for n in (0, 1)}}
    best = 0.6 * 0.05 - 0.0006 + 0.6 - 0.4 * 0.05
    assert best_step_s(found("DAT007", jobs.played(replace(busy, values=values)))) == pytest.approx(
        warm_step_s(best), rel=1e-3
    )


def test_dat007_knows_that_a_batch_made_in_place_takes_no_shared_memory() -> None:
    slow = input_jobs.dat007(delay=0.0, wall=0.4)
    values = {**slow.values, **{("fetch.system_share", n): 0.9 for n in (0, 1)}}
    assert run_rule(RULES["DAT007"], slow, Config()) == Clear("DAT007")
    assert found("DAT007", jobs.played(replace(slow, values=values))).evidence[1].value == pytest.approx(
        0.094, abs=0.001
    )


def small_tensors(tensors: int | None = 449, size: int | None = 3_154_012, **more: Any) -> Fix:
    """The second fix for batches of so many tensors and bytes."""
    slow = input_jobs.dat007()
    loaders = tuple(replace(known, batch_tensors=tensors, batch_bytes=size, **more) for known in slow.loaders)
    return found("DAT007", replace(slow, loaders=loaders)).fixes[1]


def test_dat007_advises_to_merge_many_small_tensors_where_they_are_collated() -> None:
    fix = small_tensors(collate_file=SCRIPT, collate_line=47)
    assert fix.title == "449 tensors per batch: concatenate them in collate_fn" and fix.where == Where(SCRIPT, 47)
    assert small_tensors().where == LINE, "without the function's place"
    assert small_tensors(32, 32 * 64_000).title.startswith("32 tensors")


@pytest.mark.parametrize(
    ("tensors", "size"), [(None, 1000), (31, 1000), (64, 64 * 64_001)], ids=["unknown", "few", "pictures"]
)
def test_dat007_leaves_few_or_large_tensors_apart(tensors: int | None, size: int) -> None:
    assert small_tensors(tensors, size).title.startswith("index the tensors")
