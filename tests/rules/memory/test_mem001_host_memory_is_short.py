"""MEM001, host memory is short: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_table import Table
from table_checks import Check, checks


def mem001(
    pressure: float | None = 0.2,
    held: float | None = 0.93,
    limit: float = 8000.0,
    swapped: float | None = 0.0,
    host_left: float = 0.6,
    **more: Any,
) -> Analysis:
    """Both ranks under one limit; some process waits for memory a fifth of the time."""
    known: dict[str, Any] = {
        "memory.pressure_share": pressure,
        "memory.swap_in_mb_per_s": swapped,
        "memory.host_left_share": host_left,
    }
    values = {name: value for name, value in known.items() if value is not None}
    if held is not None:
        values |= {"memory.limit_used_share": {0: held, 1: held}, "memory.limit_mb": {0: limit, 1: limit}}
    return job({0: rank(), 1: rank()}, **{"values": values, **more})


TABLE = Table(
    "MEM001",
    mem001,
    lines={
        "pressure": ({"pressure": 0.05}, {"pressure": 0.0499}),
        "short": ({"held": 0.9}, {"held": 0.899}),
        "swap_in": ({"held": 0.5, "swapped": 1.0}, {"held": 0.5, "swapped": 0.99}),
        "limit": ({"pressure": 0.0, "held": 0.95}, {"pressure": 0.0, "held": 0.949}),
        "left_mb": (
            {"pressure": 0.0, "held": 0.96, "limit": 25000.0},
            {"pressure": 0.0, "held": 0.96, "limit": 25100.0},
        ),
    },
    false_alarms={
        "a neighbour's pressure, with room of our own": {"held": 0.5},
        "pages joined into huge ones on a host with room": {"held": None, "pressure": 0.4},
        "a limit full of page cache": {"pressure": 0.0, "held": 0.3},
        "a little swapped in long ago, on a kernel without pressure": {
            "pressure": None,
            "held": 0.4,
            "swapped": 0.1,
        },
    },
    severities=(
        ({"pressure": 0.30}, "critical"),
        ({"pressure": 0.29}, "high"),
        ({"pressure": 0.15}, "high"),
        ({"pressure": 0.14}, "medium"),
        ({"pressure": 0.0, "held": 0.99}, "low"),
    ),
    best=({"pressure": 0.2}, 1 / 0.8),
    also_fires={
        "swap on a kernel without pressure": {"pressure": None, "held": None, "swapped": 8.0},
        "a host without memory, and no limit": {"held": None, "host_left": 0.05},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
