"""The GPUs as the screen shows them: the last seconds, and what is wrong in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Series, happened
from rn50_advisor.advisor.model.report import GpuProcessRow, GpuStrip
from rn50_advisor.advisor.model.wording.quantities import bytes_
from rn50_advisor.advisor.report import surroundings
from rn50_advisor.probes.documents.event_documents import GpuProcess, GpuProcesses

DEVICE = {"index": 0, "name": "A100", "uuid": "GPU-aa", "pci_bus_id": "x", "mem_total_bytes": 1, "pcie_width_max": 16}
CUDA = {"cuda": {"device": 0, "uuid": "aa", "visible": None}}
GIB = 1 << 30


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


def test_instances_of_a_gpu_stand_beside_it_with_their_memory() -> None:
    instances = [
        {"uuid": f"MIG-{n}", "name": f"NVIDIA A100 MIG {name}"} for n, name in enumerate(("3g.20gb", "1g.5gb"))
    ]
    used = {("gpu.mem_used_bytes", f"mig:0/{n}"): levels(gib * GIB) for n, gib in enumerate((10, 2.5, 1))}
    total = {("gpu.mem_total_bytes", f"mig:0/{n}"): levels(gib * GIB) for n, gib in enumerate((20, 5, 5))}
    environment = {"gpus": [{**DEVICE, "mig": True, "mig_instances": instances}]}
    made = recording({0: plan(90)}, meta={"environment": environment}, facts={100: CUDA}, samples={**used, **total})
    (strip,) = analyse(made).gpus
    words = [
        f"{name} {bytes_(a * GIB)} of {bytes_(b * GIB)}"
        for name, a, b in (("3g.20gb", 10, 20), ("1g.5gb", 2.5, 5), ("instance 2", 1, 5))
    ]
    assert strip.instances == ", ".join(words)
    assert strip.instances in dict(surroundings.gpu(strip))["memory"]


def test_what_belongs_to_no_gpu_makes_no_strip() -> None:
    samples = {("gpu.probe_s", "host"): levels(1), ("gpu.mem_used_bytes", "mig:0/1"): levels(5)}
    assert [strip.index for strip in strips(samples)] == [0]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ({"gpu.lost": series((0, 0), (9, 1)), "gpu.xid": series((8, 79))}, "lost"),
        ({"gpu.xid": series((2, 13), (3, 94), (4, 43))}, "Xid 94"),
        ({"gpu.xid": series((2, 13))}, ""),
        ({"gpu.row_remap_failed": levels(1)}, "memory row could not be replaced"),
        ({"gpu.recovery_action": levels(1)}, "needs a reset"),
        ({"gpu.sw_thermal_s": steady_counter(0.1), "gpu.hw_thermal_s": steady_counter(0.6)}, "throttled 60 %"),
        ({"gpu.hw_thermal_s": steady_counter(0.01)}, ""),
        ({"gpu.pcie_width": levels(4)}, "PCIe x4 of x16"),
        ({"gpu.pcie_width": levels(16)}, ""),
    ],
)
def test_what_is_wrong_in_a_few_words(samples: dict[str, Series], words: str) -> None:
    (strip,) = strips({(metric, "gpu:0"): readings for metric, readings in samples.items()})
    assert strip.trouble == words


def test_the_processes_of_a_gpu_are_those_of_its_last_list() -> None:
    def listing(at_ns: int, *listed: GpuProcess) -> Any:
        return happened(GpuProcesses, {"gpu": 0, "processes": listed}, t_ns=at_ns)

    own = GpuProcess(pid=100, user="ann", name="python", mem_bytes=1e9, own=True)
    other = GpuProcess(pid=7, user="bob", name="ollama", mem_bytes=None, own=False)
    (strip,) = strips({("gpu.util_pct", "gpu:0"): levels(9)}, events=(listing(1, own), listing(2, own, other)))
    assert strip.processes[0] == GpuProcessRow(100, "ann", "python", 1e9, own=True)
    assert strip.processes[1].pid == 7 and not strip.processes[1].own
    assert strips({("gpu.util_pct", "gpu:0"): levels(9)})[0].processes == ()
