"""GPU009, a clock setting holds the GPU back: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_rule_cases import gpu, on_gpus
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def gpu009(share: float = 1.0, clock: float = 1000.0, peer: float = 1400.0, **more: Any) -> Analysis:
    """The clock of GPU 1 is set to `clock`; that of GPU 0 is not set."""
    values = {
        "gpu.clock_set_share": {0: more.pop("other", 0.0), 1: share},
        "gpu.clock_mhz": {0: peer, 1: clock},
    }
    return on_gpus(values, **more)


TABLE = Table(
    "GPU009",
    gpu009,
    lines={
        "set": ({"share": 0.50}, {"share": 0.4999}),
        "clock": ({"clock": 1339.5}, {"clock": 1339.6}),  # of 1410
    },
    false_alarms={
        "set to the highest clock": {"clock": 1410.0},
        "a lower clock that is not set": {"share": 0.0},
    },
    severities=(
        ({"clock": 560.0, "slow": 0.1}, "critical"),
        ({"clock": 1000.0}, "high"),
        ({"clock": 1260.0}, "medium"),
        ({"clock": 1335.0}, "low"),
    ),
    ranks=(1,),
    best=({"clock": 1000.0}, 1.4),
    not_measured={
        "one of its GPUs": ({"share": 0.0, "blind": {"gpu.clock_set_share": 0}}, ("gpu.clock_set_share",)),
        "the clock of one that is limited": ({"blind": {"gpu.clock_mhz": 1}}, ("gpu.clock_mhz",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu009_resets_both_settings_and_names_the_clocks() -> None:
    finding = found("GPU009", TABLE.job())
    (fix,) = finding.fixes
    assert fix.change == "nvidia-smi -i 1 -rgc && nvidia-smi -i 1 -rac  # needs root" and fix.gpus == (1,)
    share, clock = finding.evidence
    assert share.value == 1.0 and "100 % of the readings" in share.note
    assert clock.note == "under load, its highest clock 1410 MHz, its peers 1400 MHz"


def test_gpu009_with_all_clocks_set_alike_bounds_the_gain_by_the_highest_clock() -> None:
    finding = found("GPU009", gpu009(other=1.0, peer=1128.0, clock=1128.0, slow=1.0))
    assert finding.scope.gpus == (0, 1) and finding.saving is not None
    assert finding.saving.speedup == pytest.approx((1.0, 1.25))


def test_gpu009_does_not_judge_a_board_whose_highest_clock_is_unknown() -> None:
    boards = (gpu(0, sm_clock_max_mhz=None), gpu(1, sm_clock_max_mhz=None))
    assert run_rule(RULES["GPU009"], gpu009(gpus=boards), Config()) == NotMeasured("GPU009", (GPU_CLOCK_MHZ,))
