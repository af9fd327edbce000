"""DAT016, items in memory are fetched one by one: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import LINE, job, loader, on_both_ranks, rank
from rule_runs import best_step_s, found, warm_step_s
from rule_table import Table
from table_checks import Check, checks


def dat016(
    wait: float = 0.2, wall: float = 0.2, *, size: int = 50_000, steady: int = 200, **of_loader: Any
) -> Analysis:
    """Both ranks wait so long for batches of so many samples that take `wall` seconds to put together."""
    made = {
        "collate": "default_collate",
        "batch_bytes": 0,
        "dataset": {"length": 9, "class": "D", "arrays": ["x", "y"]},
    }
    loaders = tuple(loader(n, 0, size=size, **{**made, **of_loader}) for n in (0, 1))
    values = {"loader.workers": on_both_ranks(0), "fetch.wall_s": on_both_ranks(wall)}
    return job({n: rank(input_wait=wait) for n in (0, 1)}, values=values, loaders=loaders, steady=steady)


TABLE = Table(
    "DAT016",
    dat016,
    lines={
        "sample": ({"wait": 0.3, "wall": 0.3, "size": 12_000}, {"wait": 0.3, "wall": 0.3, "size": 11_999}),
        "saved": ({"wait": 0.1052}, {"wait": 0.1050}),  # 55.18 ms remain at worst
    },
    false_alarms={
        "a data set that computes its samples": {"dataset": {"length": 9, "class": "D"}},
        "one that transforms them": {"dataset": {"arrays": ["x"], "transforms": ["Resize"], "class": "D"}},
        "batches put together by the user's function": {"collate": "pad"},
        "batches drawn by the user's sampler": {"batch_sampler": "Buckets"},
        "whole batches": {"size": None},
        "another library's loader": {"library": "ffcv"},
        "large samples, whose bytes take as long": {"batch_bytes": 400_000_000},
    },
    severities=(({"wait": 0.4}, "critical"), ({"wait": 0.25}, "high"), ({"wait": 0.11}, "medium")),
    where=LINE,
    best=({"wait": 0.2}, 1 / warm_step_s(0.8 + 60e-6 + 0.4e-6 * 50_000)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat016_leaves_a_batch_its_bytes() -> None:
    finding = found("DAT016", dat016(batch_bytes=100_000_000))
    assert best_step_s(finding) == pytest.approx(warm_step_s(0.8 + 60e-6 + 0.02 + 0.02))


@pytest.mark.parametrize(("shuffle", "sampler"), [(True, "RandomSampler"), (False, "SequentialSampler")])
def test_dat016_keeps_the_order(shuffle: bool, sampler: str) -> None:
    change = found("DAT016", dat016(shuffle=shuffle)).fixes[0].change
    assert f"BatchSampler({sampler}(data), 50000, drop_last=False)" in change
