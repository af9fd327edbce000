"""GPU005, another process shares the GPU: its table and its advice."""

from __future__ import annotations

import pytest

import gpu_rule_cases as gpu_jobs
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "GPU005",
    gpu_jobs.gpu005,
    lines={
        "processes": ({"count": 1.0}, {"count": 0.0}),
        "sm": ({"sm": 0.02, "held_mb": 0.0}, {"sm": 0.0199, "held_mb": 0.0}),
        "memory": ({"sm": 0.0, "held_mb": 2148.0}, {"sm": 0.0, "held_mb": 2147.0}),
    },
    false_alarms={
        "an idle context": {"sm": 0.0, "held_mb": 400.0},
        "who only came by": {"count": 0.0, "sm": 0.1},
    },
    severities=(
        ({"sm": 0.30}, "critical"),
        ({"sm": 0.29}, "high"),
        ({"sm": 0.10}, "medium"),
        ({"sm": 0.0}, "low"),
        ({"sm": None}, "low"),
    ),
    ranks=(1,),
    best=({"sm": 0.25}, 1 / 0.75),
    also_fires={"of unknown SM time": {"sm": None, "held_mb": 0.0}},
    not_measured={
        "one of its GPUs": ({"count": 0.0, "blind": {"gpu.foreign_processes": 0}}, ("gpu.foreign_processes",)),
        "what an idle stranger holds": ({"sm": 0.0, "blind": {"gpu.foreign_mem_mb": 1}}, ("gpu.foreign_mem_mb",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu005_names_the_processes_and_how_to_list_them() -> None:
    finding = found("GPU005", TABLE.job())
    assert "GPU 1 (rank 1)" in finding.evidence[0].note and "nvidia-smi -i 1" in finding.fixes[0].change
