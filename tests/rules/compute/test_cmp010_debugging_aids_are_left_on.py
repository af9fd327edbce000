"""CMP010, debugging aids are left on: its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_table import Table
from table_checks import Check, checks


def cmp010(
    on: Mapping[str, int] | None = None, *, looks: int = 10, rank_1: int = 10, cuda: bool = True, **more: Any
) -> Analysis:
    """Checks of rank 0 that found these aids on; on rank 1 anomaly detection, in `rank_1` of ten."""
    facts = {
        "debugging": {"looks": looks, "on": {"anomaly detection": 10} if on is None else on},
        "cuda": {"devices": 1} if cuda else None,
    }
    other = {"debugging": {"looks": 10, "on": {"anomaly detection": rank_1}}}
    return job({0: rank(), 1: rank()}, **{"facts": {"0": facts, "1": other}, **more})


TABLE = Table(
    "CMP010",
    cmp010,
    lines={"looks": ({"on": {"profiler": 9}, "rank_1": 0}, {"on": {"profiler": 8}, "rank_1": 0})},
    false_alarms={
        "nothing is on": {"on": {}, "rank_1": 0},
        "a profiler with a schedule": {"on": {"profiler": 5}, "rank_1": 0},
        "what only slows GPUs, where there is none": {
            "on": {"CUDA_LAUNCH_BLOCKING": 10},
            "rank_1": 0,
            "cuda": False,
        },
        "an unknown aid": {"on": {"another": 10}, "rank_1": 0},
    },
    severities=(({}, "medium"), ({"on": {"TORCH_DISTRIBUTED_DEBUG": 10}, "rank_1": 0}, "low")),
    also_fires={"launches that wait": {"on": {"CUDA_LAUNCH_BLOCKING": 10}, "rank_1": 0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
