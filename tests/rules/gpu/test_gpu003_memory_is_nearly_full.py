"""GPU003, memory is nearly full: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_rule_cases import on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def gpu003(
    retries: float = 4.0, reserved: float = 0.5, peak: float = 0.5, pieces: float = 0.2, **more: Any
) -> Analysis:
    """Rank 1's allocator; rank 0 is at ease."""
    ranks = {
        "gpu.memory_watched": {0: 60, 1: 60},
        "gpu.alloc_retries": {0: 0, 1: retries},
        "gpu.reserved_share": {0: 0.5, 1: reserved},
        "gpu.peak_share": {0: 0.4, 1: peak},
        "gpu.fragmented_share": {0: 0.5, 1: pieces},
    }
    return on_gpus({}, ranks=ranks, **more)


TABLE = Table(
    "GPU003",
    gpu003,
    lines={
        "retries": ({"retries": 1}, {"retries": 0}),
        "reserved": (
            {"retries": 0, "reserved": 0.95, "peak": 0.93},
            {"retries": 0, "reserved": 0.9499, "peak": 0.93},
        ),
        "peak": (
            {"retries": 0, "reserved": 0.97, "peak": 0.90},
            {"retries": 0, "reserved": 0.97, "peak": 0.8999},
        ),
        "often": ({"retries": 2}, {"retries": 0}),
    },
    false_alarms={"a cache that keeps what it got": {"retries": 0, "reserved": 0.99, "peak": 0.6}},
    severities=(
        ({"retries": 2}, "medium"),  # of two hundred steps
        ({"retries": 1}, "low"),
        ({"retries": 0, "reserved": 0.98, "peak": 0.95}, "low"),
    ),
    ranks=(1,),
    not_measured={
        "the allocator of a rank": ({"retries": 0, "blind": {"gpu.memory_watched": 0}}, ("gpu.memory_watched",)),
        "how much memory there is": ({"retries": 0, "blind": {"gpu.reserved_share": 0}}, ("gpu.reserved_share",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("retries", "pieces", "first"), [(4, 0.2, "PYTORCH_CUDA_ALLOC_CONF"), (4, 0.05, "")])
def test_gpu003_advises_against_fragmentation_if_there_is_any(retries: float, pieces: float, first: str) -> None:
    finding = found("GPU003", TABLE.job(retries=retries, pieces=pieces))
    assert finding.fixes[0].change.startswith(first) and bool(finding.fixes[0].change) is bool(first)
    assert {e.metric: e.value for e in finding.evidence}["gpu.fragmented_share"] == pieces


def test_gpu003_does_not_advise_a_setting_that_is_in_force() -> None:
    job = TABLE.job(retries=4, pieces=0.2)
    environment = {"variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    finding = found("GPU003", replace(job, meta=replace(job.meta, environment=environment)))
    assert [fix.change for fix in finding.fixes] == [""]
