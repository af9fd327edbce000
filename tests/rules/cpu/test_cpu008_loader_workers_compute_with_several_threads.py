"""CPU008, loader workers compute with several threads: its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, dat001
from rule_table import Table, warm
from table_checks import Check, checks


def cpu008(share: float = 0.5, cores: float = 6.0, **more: Any) -> Analysis:
    """Workers that keep cores busy with other threads than those that make batches: so many, and this share of their CPU time."""
    made = dat001(**{"cpu": 0.5, "delay": 0.4, **more})
    helping = {"loader.helper_share": share, "loader.helper_cores": cores / 2}
    values = {(name, number): value for name, value in helping.items() for number in (0, 1)}
    return replace(made, values={**made.values, **values})


TABLE = Table(
    "CPU008",
    cpu008,
    lines={
        "cores": ({"cores": 1.6}, {"cores": 1.59}),
        "share": ({"share": 0.25}, {"share": 0.2499}),
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
        "workers_share": ({"wait": 0.03, "crowd": 0.4, "wall": 1.21}, {"wait": 0.03, "crowd": 0.4, "wall": 1.19}),
        "delay": ({"delay": 0.15}, {"delay": 0.1499}),
    },
    false_alarms={
        "cores that idle, on which they shorten each batch": {"delay": 0.02, "busy": 8.0},
        "a thread that hands over the little that a worker makes": {"cores": 0.1},
        "batches that come in time": {"wait": 0.01},
    },
    severities=(
        ({"wait": 0.6, "delay": 0.6}, "critical"),
        ({"wait": 0.4}, "high"),
        ({"wait": 0.1}, "medium"),
        ({"wait": 0.05}, "low"),
    ),
    where=Where(SCRIPT, 42),
    best=(
        {"wait": 0.4},
        warm(1 / (1 - 1.7 * 0.4 * 0.4)),
    ),  # so much of the workers' CPU time is lost, and as much of the wait
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
