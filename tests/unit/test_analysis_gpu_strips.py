"""The GPUs as the screen shows them: the last seconds, and what is wrong in a few words."""

from __future__ import annotations

from typing import Any

import pytest
from recordings import plan, recording, series, steady_counter

from advisor.analysis.analyse import analyse
from advisor.core.recording import Series
from advisor.core.report import GpuStrip

DEVICE = {"index": 0, "name": "A100", "uuid": "GPU-aa", "pci_bus_id": "x", "mem_total_bytes": 1, "pcie_width_max": 16}
CUDA = {"cuda": {"device": 0, "uuid": "aa", "visible": None}}


def strips(samples: dict[tuple[str, str], Series], **more: Any) -> tuple[GpuStrip, ...]:
    environment = {"gpus": [DEVICE]}
    made = recording({0: plan(90)}, meta={"environment": environment}, facts={100: CUDA}, samples=samples, **more)
    return analyse(made).gpus


def levels(value: float) -> Series:
    return series(*((t, value) for t in range(10)))


def test_the_last_seconds_of_each_gpu() -> None:
    samples = {
        ("gpu.pcie_gen", "gpu:0"): levels(4),
        ("gpu.pcie_width", "gpu:0"): levels(16),
        ("gpu.tensor_active_pct", "gpu:0"): levels(31),
        ("gpu.hw_thermal_s", "gpu:0"): steady_counter(0.0),
    }
    (strip,) = strips(samples)
    assert (strip.ranks, strip.pcie_gen, strip.pcie_width, strip.tensor_active_pct) == ("0", 4, 16, 31)
    assert strip.throttled_pct == 0 and strip.trouble == ""


def test_what_belongs_to_no_gpu_makes_no_strip() -> None:
    samples = {("gpu.probe_s", "host"): levels(1), ("gpu.mem_used_bytes", "mig:0/1"): levels(5)}
    assert [strip.index for strip in strips(samples)] == [0]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ({"gpu.lost": series((0, 0), (9, 1)), "gpu.xid": series((8, 79))}, "lost"),
        ({"gpu.xid": series((2, 13), (3, 94), (4, 43))}, "Xid 94"),
        ({"gpu.xid": series((2, 13))}, ""),
        ({"gpu.row_remap_failed": levels(1)}, "memory row beyond repair"),
        ({"gpu.recovery_action": levels(1)}, "asks for a reset"),
        ({"gpu.sw_thermal_s": steady_counter(0.1), "gpu.hw_thermal_s": steady_counter(0.6)}, "throttled 60 %"),
        ({"gpu.hw_thermal_s": steady_counter(0.01)}, ""),
        ({"gpu.pcie_width": levels(4)}, "PCIe x4 of x16"),
        ({"gpu.pcie_width": levels(16)}, ""),
    ],
)
def test_what_is_wrong_in_a_few_words(samples: dict[str, Series], words: str) -> None:
    (strip,) = strips({(metric, "gpu:0"): readings for metric, readings in samples.items()})
    assert strip.trouble == words
