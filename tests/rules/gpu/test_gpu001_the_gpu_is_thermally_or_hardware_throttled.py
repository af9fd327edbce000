"""GPU001, the GPU is thermally or hardware throttled: its table and its advice."""

from __future__ import annotations

import pytest

import gpu_rule_cases as gpu_jobs
from gpu_rule_cases import gpu
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "GPU001",
    gpu_jobs.gpu001,
    lines={"share": ({"share": 0.02}, {"share": 0.0199})},
    false_alarms={
        "reasons that flash up while clocks change": {"share": 0.005},
        "a GPU at work at its highest clock": {"share": 0.0, "clock": 1410.0},
    },
    severities=(
        ({"clock": 548.0, "slow": 0.1}, "critical"),
        ({"clock": 900.0}, "high"),
        ({"clock": 1233.0}, "medium"),
        ({"clock": 1370.0}, "low"),  # as fast as its peer: worth a word, not a verdict
        ({"clock": None}, "low"),
    ),
    ranks=(1,),
    best=({"clock": 548.0}, 1 / 0.6),
    also_fires={
        "by the driver alone": {"kind": "sw_thermal"},
        "power brake slowdown": {"kind": "power_brake"},
        "a machine of one GPU": {"gpus": (gpu(0, ranks=(0,)), gpu(1)), "peer": None},
        "by a driver that does not say by what": {"kind": "thermal"},
    },
    not_measured={
        "one of its GPUs": ({"share": 0.0, "blind": {"gpu.throttled_share": 0}}, ("gpu.throttled_share",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("kind", "words", "fix"),
    [
        ("hw_thermal", "hardware thermal slowdown", "cool GPU 1"),
        ("sw_thermal", "software thermal slowdown", "cool GPU 1"),
        ("power_brake", "power brake slowdown", "power supply of GPU 1"),
    ],
)
def test_gpu001_names_what_throttled_the_clocks(kind: str, words: str, fix: str) -> None:
    finding = found("GPU001", TABLE.job(kind=kind))
    assert words in finding.title and fix in finding.fixes[0].title
    assert "60 % of the time" in finding.evidence[0].note
    assert finding.evidence[1].note == "under load, its peers 1370 MHz, 91 °C"


def test_gpu001_promises_no_certain_gain_without_a_sound_peer() -> None:
    alone = found("GPU001", TABLE.job(gpus=(gpu(0, ranks=()), gpu(1)), peer=None, slow=0.0))
    assert alone.saving is not None and alone.saving.speedup[0] == 1.0
    assert alone.saving.speedup[1] == pytest.approx(1 / (900 / 1410))
    assert "at most" in alone.saving.basis
    by_peers = found("GPU001", TABLE.job(slow=0.0)).saving
    assert by_peers is not None and by_peers.speedup[0] > 1.0


def test_gpu001_does_not_take_a_hot_gpu_for_a_peer() -> None:
    both = gpu_jobs.on_gpus({"gpu.throttled_share": {0: 0.5, 1: 0.5}, "gpu.clock_mhz": {0: 705.0, 1: 705.0}}, slow=1.0)
    finding = found("GPU001", both)
    assert finding.scope.gpus == (0, 1) and finding.scope.ranks == ()
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 2.0))
