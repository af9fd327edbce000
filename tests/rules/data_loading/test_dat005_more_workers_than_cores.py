"""DAT005, more workers than cores: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_cases import LINE, job, loader, on_both_ranks, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def dat005(
    delay: float = 0.3,
    in_fetch: float = 0.4,
    cpu: float = 0.5,
    *,
    workers: int = 16,
    others: float = 0.2,
    job_cores: float = 12.0,
    start: float = 0.0,
    wall: float = 4.0,
    persistent: bool = True,
    **more: Any,
) -> Analysis:
    """Training threads wait `delay` seconds for one of sixteen cores; the job's work would fill `job_cores` of them.

    An epoch of ten steps begins with `10 * start` seconds of waiting.
    """
    values: dict[str, Any] = {
        "step.run_delay_s": on_both_ranks(delay),
        "fetch.delay_share": on_both_ranks(in_fetch),
        "fetch.cpu_share": on_both_ranks(cpu),
        "fetch.wall_s": on_both_ranks(wall),
        "loader.workers": on_both_ranks(workers),
        "loader.busy_share": on_both_ranks(1.0),
        "step.epoch_start_s": on_both_ranks(start),
        "epoch.start_s": on_both_ranks(10 * start),
        "cpu.other_cores": others,
    }
    loaders = tuple(loader(n, workers, persistent=persistent) for n in (0, 1))
    own = {n: rank(input_wait=start) for n in (0, 1)}
    return job(own, **{"values": values, "job_cores": job_cores, "loaders": loaders, **more})


TABLE = Table(
    "DAT005",
    dat005,
    lines={
        "threads": ({"workers": 12}, {"workers": 11}),  # and two that train
        "waiting": ({"in_fetch": 0.4, "cpu": 0.6}, {"in_fetch": 0.399, "cpu": 0.6}),
        "spare_share": ({"job_cores": 13.09}, {"job_cores": 13.11}),  # half a core of it is the system's
        "spare_cores": ({"cores": 2.0, "job_cores": 0.99}, {"cores": 2.0, "job_cores": 1.01}),
        "others": ({"others": 3.99}, {"others": 4.0}),
    },
    false_alarms={
        "exhausted cores: fewer workers make no less work": {"job_cores": 16.0},
        "as many workers as keep up with the step": {"workers": 3},
        "workers that mostly find a core at once": {"in_fetch": 0.2, "cpu": 0.7},
        "workers that only delay each other, while no rank waits for their batches": {"delay": 0.0},
        "an epoch begins with a buffer that is filled": {"delay": 0.0, "start": 0.4, "wall": 0.04},
        "new workers of each epoch start, and are soon done": {"delay": 0.0, "start": 0.4, "persistent": False},
        "neighbours take the cores": {"others": 8.0, "job_cores": 4.0},
    },
    severities=(
        ({"delay": 0.4, "job_cores": 1.0}, "critical"),
        ({"delay": 0.39, "job_cores": 1.0}, "high"),
        ({"delay": 0.19, "job_cores": 1.0}, "medium"),
    ),
    where=LINE,
    best=({"delay": 0.3}, 1 / 0.75),
    also_fires={
        "only the workers wait for a core, the training thread a little": {"delay": 0.1},
        "they make the first batches of epochs all at once": {"delay": 0.0, "start": 0.4},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat005_advises_the_workers_that_keep_up_if_no_thread_waits_for_a_core() -> None:
    # a batch takes 4 s, 2.4 s without the waiting, beside a step of one second
    assert found("DAT005", TABLE.job()).fixes[0].title == "num_workers=16 → 3"
    assert found("DAT005", TABLE.job(cpu=0.4)).evidence[0].value == pytest.approx(0.5)


def test_dat005_regains_the_time_that_contention_adds_to_epoch_starts() -> None:
    """A batch alone would take 60 % of the four seconds that it takes in the crowd."""
    finding = found("DAT005", TABLE.job(delay=0.0, start=0.4))
    begin = {e.metric: e for e in finding.evidence}["step.epoch_start_s"]
    assert begin.value == pytest.approx(0.16) and "each epoch start takes 4.00 s" in begin.note
    assert finding.saving is not None and finding.saving.seconds_per_step == pytest.approx((0.08, 0.16))
    long = found(
        "DAT005", TABLE.job(delay=0.0, start=0.4, wall=1.0)
    )  # two batches of each of 32 workers on 16 cores take 2.4 s
    assert {e.metric: e.value for e in long.evidence}["step.epoch_start_s"] == pytest.approx(0.4 * (2.4 - 0.6) / 4)


def test_dat005_is_the_root_of_stalls_that_come_with_its_epochs() -> None:
    stalls = jobs.run004(phase="input_wait", share=0.3).pulse
    made = dat005(delay=0.2, start=0.3, pulse=stalls)
    causes = {finding.rule: finding.explained_by for finding in judge(made, all_rules(), Config()).findings}
    assert causes["DAT005"] is None and causes["RUN004"] == "DAT005"
