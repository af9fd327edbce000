"""DAT013, workers wait for one lock: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine, SharedLock
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, loader, on_both_ranks, rank, without
from rule_runs import RULES, found
from rule_table import Table, waits, warm
from table_checks import Check, checks

LOCK = SharedLock("lock", SampleLine("Frames.__getitem__", SCRIPT, 61, 9, 12))


def dat013(
    wait: float = 0.4, share: float = 0.75, error: float = 0.05, *, workers: int = 2, wall: float = 2.0, **more: Any
) -> Analysis:
    """Four workers on two ranks, which sleep for nine tenths of a batch; `share` of the samples show one waiting for the lock."""
    values: dict[str, Any] = {
        "loader.lock_share": share,
        "loader.lock_error": error,
        "fetch.cpu_share": on_both_ranks(0.1),
        "fetch.wall_s": on_both_ranks(wall),
        "loader.workers": on_both_ranks(workers),
        "loader.busy_share": on_both_ranks(1.0),
    }
    own = {n: rank(input_wait=wait) for n in (0, 1)}
    given = {"values": values, "loaders": (loader(0, workers), loader(1, workers)), "lock": LOCK}
    return job(own, **{**given, **more})


TABLE = Table(
    "DAT013",
    dat013,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "waiting": ({"share": 0.3}, {"share": 0.2999}),
    },
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "a lock that is held briefly": {"share": 0.05},
        "the training process waits for a lock of its own": {"workers": 0},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 61),
    best=({"wall": 2.0}, warm(1 / 0.6)),
    also_fires={"a server that all workers ask, behind a library's data set": {"lock": SharedLock("server")}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_workers_that_take_turns_get_the_place_of_the_lock_and_a_way_without_it() -> None:
    finding = found("DAT013", dat013())
    assert finding.title.startswith("Data loading: 2 workers wait for a shared lock")
    assert "9 of 12 stacks at Frames.__getitem__ (train.py:61)" in finding.evidence[0].note
    server = found("DAT013", dat013(lock=SharedLock("server")))
    assert server.fixes[0].where == Where(SCRIPT, 42) and "memmap" in server.fixes[0].change


def test_without_stacks_of_the_workers_a_lock_is_not_measured() -> None:
    outcome = run_rule(RULES["DAT013"], without(dat013(), "loader.lock_share"), Config())
    assert outcome == NotMeasured("DAT013", ("loader.lock_share",))
