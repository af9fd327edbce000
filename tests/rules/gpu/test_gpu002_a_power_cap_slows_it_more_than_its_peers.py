"""GPU002, a power cap slows it more than its peers: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from gpu_rule_cases import gpu, on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def gpu002(
    capped: float = 0.9, clock: float = 1000.0, peer: float = 1400.0, limit: float = 400.0, **more: Any
) -> Analysis:
    """GPU 1 is at its power limit and runs at `clock`."""
    values = {
        "gpu.power_capped_share": {0: more.pop("other", 0.0), 1: capped},
        "gpu.clock_mhz": {0: peer, 1: clock},
        "gpu.power_limit_w": {0: 400.0, 1: limit},
    }
    return on_gpus(values, **more)


TABLE = Table(
    "GPU002",
    gpu002,
    lines={
        "capped": ({"capped": 0.10}, {"capped": 0.0999}),
        "clock": ({"clock": 1330.0}, {"clock": 1330.1}),
        "limit": ({"clock": 1400.0, "limit": 380.0}, {"clock": 1400.0, "limit": 380.1}),
    },
    false_alarms={
        "full load at the full limit, all alike": {"other": 0.9, "clock": 1400.0},
        "a lower clock without a limit met": {"capped": 0.0},
        "a lowered limit that is never met": {"capped": 0.0, "limit": 300.0},
    },
    severities=(
        ({"clock": 560.0, "slow": 0.1}, "critical"),
        ({"clock": 1000.0}, "high"),
        ({"clock": 1260.0}, "medium"),
        ({"clock": 1330.0}, "low"),
    ),
    ranks=(1,),
    best=({"clock": 1000.0}, 1.4),
    also_fires={"the limit was lowered": {"clock": 1400.0, "limit": 300.0}},
    not_measured={
        "one of its GPUs": ({"capped": 0.0, "blind": {"gpu.power_capped_share": 0}}, ("gpu.power_capped_share",)),
        "the clock of one that meets its limit": ({"blind": {"gpu.clock_mhz": 1}}, ("gpu.clock_mhz",)),
        "the limit that one meets": ({"clock": 1400.0, "blind": {"gpu.power_limit_w": 1}}, ("gpu.power_limit_w",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu002_gives_the_command_where_the_limit_was_lowered() -> None:
    lowered = found("GPU002", TABLE.job(limit=250.0))
    assert "it was lowered" in lowered.title and lowered.fixes[0].change == "nvidia-smi -i 1 -pl 400"
    assert "cooling" in found("GPU002", TABLE.job()).fixes[0].title


def test_gpu002_raises_limits_that_were_lowered_and_cools_the_others() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.3, 1: 0.9, 2: 0.0},
        "gpu.clock_mhz": {0: 1250.0, 1: 1000.0, 2: 1400.0},
        "gpu.power_limit_w": {0: 400.0, 1: 250.0, 2: 400.0},
    }
    finding = found("GPU002", gpu_jobs.on_gpus(values, gpus=tuple(map(gpu, range(3)))))
    assert finding.title.endswith("limits GPUs 0 and 1: that of GPU 1 was lowered")
    assert [(fix.title, fix.change) for fix in finding.fixes] == [
        ("raise the power limit of GPU 1 to 400 W", "nvidia-smi -i 1 -pl 400"),
        ("check the cooling of GPU 0, or request another instance", ""),
    ]


def test_gpu002_gives_each_board_its_own_limit() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.9, 1: 0.9},
        "gpu.clock_mhz": {0: 1000.0, 1: 1000.0},
        "gpu.power_limit_w": {0: 250.0, 1: 250.0},
    }
    boards = (gpu(0), gpu(1, name="NVIDIA L40S", power_limit_default_w=350.0))
    changes = [fix.change for fix in found("GPU002", gpu_jobs.on_gpus(values, gpus=boards)).fixes]
    assert changes == ["nvidia-smi -i 0 -pl 400", "nvidia-smi -i 1 -pl 350"]


def test_gpu002_with_all_limits_lowered_alike_bounds_the_gain_by_the_highest_clock() -> None:
    values = {
        "gpu.power_capped_share": {0: 0.9, 1: 0.9},
        "gpu.clock_mhz": {0: 1128.0, 1: 1128.0},
        "gpu.power_limit_w": {0: 250.0, 1: 250.0},
    }
    finding = found("GPU002", gpu_jobs.on_gpus(values, slow=1.0))
    assert finding.scope.gpus == (0, 1)
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 1.25))
