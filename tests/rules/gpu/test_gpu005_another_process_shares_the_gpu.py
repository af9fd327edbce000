"""GPU005, another process shares the GPU: its table and its advice."""

from __future__ import annotations

import pytest

import gpu_rule_cases as gpu_jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_runs import RULES, found
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


def in_container(unexplained_mb: float, others: float = 1.0) -> Analysis:
    """Two GPUs of whose processes nothing is listed; the first one's passes take `others` of the time of the second's."""
    return gpu_jobs.on_gpus({"gpu.unexplained_mb": {0: 0.0, 1: unexplained_mb}}, slow=others)


def test_memory_that_the_job_does_not_explain_is_anothers_where_no_processes_are_listed() -> None:
    finding = found("GPU005", in_container(6_000.0, others=0.65))
    assert finding.scope.gpus == (1,) and "holds memory" in finding.title and finding.confidence <= 0.6
    assert finding.saving is not None and finding.saving.speedup[1] > 1.2
    alike = found("GPU005", in_container(6_000.0))
    assert alike.saving is None and alike.severity == "low"


def test_a_little_memory_more_is_the_jobs_own() -> None:
    assert run_rule(RULES["GPU005"], in_container(900.0), Config()) == NotMeasured("GPU005", ("gpu.foreign_processes",))
