"""GPU004, memory creeps: its table and its advice."""

from __future__ import annotations

import pytest

import gpu_rule_cases as gpu_jobs
from ending_rule_cases import death
from gpu_rule_cases import trend
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "GPU004",
    gpu_jobs.gpu004,
    lines={
        "growth": ({"per_step": 5 / 3}, {"per_step": 1.66}),
        "steps": (
            {"per_step": 20.0, "steps": 50.0},
            {"per_step": 20.0, "steps": 49.0},
        ),
        "batches": ({"batches": 1.09}, {"batches": 1.11}),
        "lasting": ({"bend": 0.7}, {"bend": 0.701}),
    },
    false_alarms={
        "nothing moves": {"per_step": 0.0},
        "pictures that become larger": {"per_step": 40.0, "batches": 2.0},
        "caches that settle": {"bend": 0.9},
        "one jump, at an evaluation": {"bend": 0.0},
        "memory that is given back": {"per_step": -2.0},
        "too few looks for a trend": {"trends": ()},
    },
    severities=(
        ({"left": 1198.0}, "critical"),  # 2 MB a second
        ({"left": 1202.0}, "high"),
        ({"left": 7202.0}, "medium"),
        ({"left": 86402.0}, "low"),
        ({"left": None}, "low"),
        ({"deaths": (death(1, exception="torch.OutOfMemoryError: CUDA out of memory. Tried …"),)}, "critical"),
    ),
    ranks=(1,),
    also_fires={
        "two ranks": {"trends": (trend(), trend(per_step=5.0))},
        "by more than the pictures": {"per_step": 70.0, "batches": 2.0},
    },
    not_measured={
        "the allocator of a rank": ({"trends": (), "blind": {"gpu.memory_watched": 0}}, ("gpu.memory_watched",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu004_estimates_how_long_memory_lasts() -> None:
    finding = found("GPU004", TABLE.job(left=600.0))
    assert "runs out in 5m 00s" in finding.title and finding.urgent and finding.scope.gpus == (1,)
    assert "2 MB per step" in finding.evidence[0].note
    both = found("GPU004", gpu_jobs.gpu004((trend(left=9000.0), trend(per_step=50.0, left=9000.0))))
    assert "runs out in 3m 00s" in both.title  # by the faster of the two
