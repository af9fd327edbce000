"""DAT017, an indices mapping slows every item: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import LINE, job, loader, on_both_ranks, rank
from rule_runs import found, warm_step_s
from rule_table import Table
from table_checks import Check, checks

MAPPED = {"class": "datasets.arrow_dataset.Dataset", "length": 9, "format": "python", "lookup_ns": 12_500}
WRAPPER: dict[str, Any] = {"class": "Wrapper", "length": 9}


def dat017(
    wait: float = 0.4,
    wall: float = 0.4,
    *,
    lookup_ns: int = 12_500,
    workers: int = 0,
    size: int = 16_000,
    dataset: dict[str, Any] | None = None,
    steady: int = 200,
    **of_loader: Any,
) -> Analysis:
    """Both ranks wait so long for batches of 16,000 items, which take `wall` seconds; 0.2 of them are for 16,000 look-ups."""
    data = {**MAPPED, "lookup_ns": lookup_ns} if dataset is None else dataset
    loaders = tuple(loader(n, workers, size=size, dataset=data, **of_loader) for n in (0, 1))
    values = {
        "loader.workers": on_both_ranks(workers),
        "fetch.wall_s": on_both_ranks(wall),
        "fetch.cpu_share": on_both_ranks(1.0),
        "step.samples": size,
        "step.batches": on_both_ranks(1.0),
    }
    own = {n: rank(input_wait=wait) for n in (0, 1)}
    return job(own, values=values, loaders=loaders, steady=steady)


TABLE = Table(
    "DAT017",
    dat017,
    lines={"saved": ({"lookup_ns": 4_170}, {"lookup_ns": 4_160})},  # 16,000 times 0.75 of it are 50 ms of the second
    false_alarms={
        "a data set without a mapping": {"dataset": {"class": "datasets.arrow_dataset.Dataset", "length": 9}},
        "another data set": {"dataset": WRAPPER},
        "items that take so long that the mapping does not matter": {"lookup_ns": 500},
        "batches that are there in time": {"wait": 0.01, "workers": 2, "wall": 0.1},
        "items that take less than a look-up": {"wall": 0.1, "lookup_ns": 12_500},
    },
    severities=(
        ({"wait": 0.8, "wall": 0.8, "lookup_ns": 25_000}, "critical"),
        ({}, "high"),
        ({"lookup_ns": 6_000}, "medium"),
    ),
    where=LINE,
    best=({}, 1 / warm_step_s(1.0 - 1.3 * 0.2)),
    also_fires={
        "in a wrapper": {"dataset": {**WRAPPER, "inner": MAPPED}},
        "in all parts of a concatenation": {"dataset": {**WRAPPER, "parts": [MAPPED, MAPPED]}},
        "with one worker": {"workers": 1, "wall": 1.0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat017_says_how_items_are_made_and_what_a_look_up_costs() -> None:
    python = found("DAT017", dat017()).evidence[1]
    assert python.value == 12.5e-6 and python.note == "of the 25.0 µs per item, as Python objects"


def test_dat017_promises_less_where_items_are_tensors() -> None:
    slow = found("DAT017", dat017(lookup_ns=25_000)).saving
    finding = found("DAT017", dat017(dataset={**MAPPED, "format": "torch", "lookup_ns": 25_000}))
    assert "Python" not in finding.evidence[1].note
    assert slow is not None and finding.saving is not None
    assert finding.saving.speedup[0] < slow.speedup[0]


def test_dat017_takes_the_mean_of_a_concatenation() -> None:
    plain = {"class": "Plain", "length": 18}
    mixed = dat017(dataset={**WRAPPER, "parts": [MAPPED, plain]}, lookup_ns=0)
    assert found("DAT017", mixed).evidence[1].value == pytest.approx(12.5e-6 / 3)


@pytest.mark.parametrize("shuffle", [True, False])
def test_dat017_leaves_shuffling_to_a_loader_that_shuffles(shuffle: bool) -> None:
    torchs, flat = found("DAT017", dat017(shuffle=shuffle)).fixes
    assert ("no data.shuffle()" in torchs.change) is shuffle and "Subset" in torchs.change
    assert "flatten_indices()" in flat.change and "seven passes" in flat.change


def test_dat017_is_not_the_cause_of_missing_workers_that_would_gain_more() -> None:
    finding = found("DAT017", dat017())
    assert not finding.circumstances and "DAT003" not in would_explain(dat017(), finding)
