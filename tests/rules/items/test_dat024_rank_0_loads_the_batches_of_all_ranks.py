"""DAT024, rank 0 loads the batches of all ranks: its table, its estimate and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, loader, rank
from rule_runs import found
from rule_table import Table, waits
from table_checks import Check, checks

STREAM = {"class": "train.Stream", "length": None}


def dat024(
    wait: float = 0.4, *, dispatches: bool = True, ranks: int = 2, workers: int = 0, making: float = 0.1, **more: Any
) -> Analysis:
    """Ranks that wait for the batches that rank 0 makes, two for each step and in `making` seconds each."""
    own = {n: rank(input_wait=wait) for n in range(ranks)}
    values: dict[str, Any] = {
        "loader.workers": {n: float(workers) for n in own},
        "step.batches": dict.fromkeys(own, 1.0),
        **({"fetch.wall_s": {0: making}} if making else {}),
    }
    data = more.pop("dataset", STREAM)
    loaders = tuple(
        replace(
            loader(n, workers),
            dataset=data,
            dispatches=dispatches,
            per_step=float(ranks) if dispatches and not n else None,
        )
        for n in own
    )
    return job(own, values=values, loaders=loaders, **more)


TABLE = Table(
    "DAT024",
    dat024,
    lines={"input_wait": ({"wait": 0.05, "making": 0.01}, {"wait": 0.0499, "making": 0.01})},
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "each rank has a loader of its own": {"dispatches": False},
        "a single rank": {"ranks": 1},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 42),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_what_rank_0_makes_and_the_wait_of_the_others_are_told() -> None:
    finding = found("DAT024", dat024(ranks=3))
    assert finding.title == "Data loading: rank 0 loads the batches of all 3 ranks"
    wait, making = finding.evidence
    assert wait.value == pytest.approx(0.4)
    assert making.value == pytest.approx(0.1)
    assert "makes 3 in each step" in making.note and "the others wait, 400 ms per step" in making.note


def test_at_best_each_rank_waits_for_its_own_batch_alone() -> None:
    saving = found("DAT024", dat024(making=0.15)).saving
    assert saving is not None
    assert saving.speedup[1] == pytest.approx(1 / (0.6 + 0.15))
    assert 1.0 < saving.speedup[0] < saving.speedup[1]


def test_workers_of_each_rank_make_its_batches_beside_the_training() -> None:
    saving = found("DAT024", dat024(workers=1, making=0.5)).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.6)


def test_busy_cores_bound_the_gain() -> None:
    """Two cores that the job keeps busy for 0.9 of the step cannot make more in less."""
    saving = found("DAT024", dat024(cores=2.0, job_cores=1.8)).saving
    assert saving is not None and saving.speedup[1] == pytest.approx(1 / 0.9)


def test_without_the_time_to_make_a_batch_the_wait_of_rank_0_stands_for_it() -> None:
    finding = found("DAT024", dat024(making=0.0))
    assert len(finding.evidence) == 1
    assert finding.saving is not None and finding.saving.speedup[1] == pytest.approx(1 / 0.8)


@pytest.mark.parametrize(
    ("dataset", "first"),
    [
        (STREAM, "shards[rank::world_size]"),
        ({"class": "datasets.iterable_dataset.IterableDataset", "length": None}, "dispatch_batches=False"),
        ({"class": "train.Pictures", "length": 100}, "dispatch_batches=False"),
    ],
)
def test_the_way_that_divides_this_data_set_comes_first(dataset: dict[str, Any], first: str) -> None:
    fixes = found("DAT024", dat024(dataset=dataset)).fixes
    assert first in fixes[0].change and len(fixes) == 2
    assert {fix.where for fix in fixes} == {Where(SCRIPT, 42)}
