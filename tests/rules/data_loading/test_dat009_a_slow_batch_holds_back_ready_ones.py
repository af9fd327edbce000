"""DAT009, a slow batch holds back ready ones: its table and its advice."""

from __future__ import annotations

import pytest

import input_rule_cases as input_jobs
from input_rule_cases import short_of
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "DAT009",
    input_jobs.dat009,
    lines={
        "behind": ({"behind": 0.05}, {"behind": 0.0499}),
        "slow": ({"slow": 2.0}, {"slow": 1.99}),
        "lag": ({"slow": 1.0, "lag": 1.25}, {"slow": 1.0, "lag": 1.2499}),
    },
    false_alarms={
        "workers that are too slow leave nothing ready": {"behind": 0.0},
        "workers briefly out of step": {"slow": 1.3},
        "a worker collects garbage": {"collecting": 0.2},
    },
    severities=(({"behind": 0.4}, "critical"), ({"behind": 0.39}, "high"), ({"behind": 0.19}, "medium")),
    where=LINE,
    best=({"wall": 1.8}, 1 / 0.9),
    also_fires={"one rank's slow batches stop all": {"only": 0.0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("values", "titles"),
    [
        pytest.param({}, ["prefetch_factor=2 → 4"], id="nothing is known to be short"),
        pytest.param({"shm__total_mb": 1000.0, "shm__used_share": 0.3}, ["prefetch_factor=2 → 4"], id="room for both"),
        pytest.param({"shm__total_mb": 700.0, "shm__used_share": 0.4}, ["prefetch_factor=2 → 3"], id="for one more"),
        pytest.param({"shm__total_mb": 400.0, "shm__used_share": 0.7}, [], id="for none"),
        pytest.param(
            {"memory__worker_mb": 100.0, "memory__headroom_mb": 800.0}, ["prefetch_factor=2 → 4"], id="memory"
        ),
        pytest.param({"memory__worker_mb": 100.0, "memory__headroom_mb": 300.0}, ["prefetch_factor=2 → 3"], id="some"),
        pytest.param({"memory__worker_mb": 100.0, "memory__headroom_mb": 100.0}, [], id="no memory"),
    ],
)
def test_dat009_prefetches_no_more_than_fits(values: dict[str, float], titles: list[str]) -> None:
    """With four workers on two ranks, each further prefetched batch takes 77 MB a rank."""
    for torch, first in (("2.6.1", []), ("2.15.0", ["in_order=False"])):
        outcome = run_rule(RULES["DAT009"], short_of(input_jobs.dat009(torch=torch), **values), Config())
        assert isinstance(outcome, Finding)
        *others, last = [fix.title for fix in outcome.fixes]
        assert others == [*first, *titles] and last.startswith("equalize sample cost")


def test_dat009_takes_batches_out_of_order_only_where_torch_can() -> None:
    assert found("DAT009", TABLE.job()).fixes[0].title == "in_order=False"
    assert found("DAT009", TABLE.job(torch="2.6.1")).fixes[0].title == "prefetch_factor=2 → 4"
    assert found("DAT009", TABLE.job(facts={})).fixes[0].title == "prefetch_factor=2 → 4"


def test_dat009_names_the_rank_whose_batches_are_slow() -> None:
    assert found("DAT009", TABLE.job(only=0.0)).scope.ranks == (1,)
