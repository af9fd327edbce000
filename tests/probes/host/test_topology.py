"""Host properties, from recorded trees and from the real machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from probe_trees import write_tree
from rn50_advisor.probes.host import topology
from rn50_advisor.probes.host.topology import host_facts, slow_denormals


def test_a_virtual_machine_with_two_sockets_and_two_threads_a_core(tmp_path: Path) -> None:
    cpus = [
        f"processor\t: {i}\nmodel name\t: Intel(R) Xeon(R)\nphysical id\t: {i // 4}\ncore id\t: {i % 2}\nflags\t: fpu hypervisor\n"
        for i in range(8)
    ]
    root = write_tree(
        tmp_path,
        {
            "proc/cpuinfo": "\n".join(cpus),
            "proc/meminfo": "MemTotal: 1024 kB\nSwapTotal: 0 kB\n",
            "proc/sys/kernel/hostname": "node1\n",
            "proc/sys/kernel/osrelease": "6.8.0-aws\n",
            "etc/os-release": 'NAME=x\nPRETTY_NAME="Ubuntu 24.04 LTS"\n',
            "sys/devices/system/node/node0/cpulist": "0-3\n",
            "sys/devices/system/node/node1/cpulist": "4-7\n",
            "sys/devices/system/node/node10/cpulist": "\n",
            "sys/devices/system/cpu/online": "0-7\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "sys/class/dmi/id/product_name": "p4d.24xlarge\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
            "sys/class/infiniband/mlx5_1/ports/1/rate": "200 Gb/sec (4X HDR)\n",
            ".dockerenv": "",
        },
    )
    facts = host_facts(root)
    assert facts.pop("machine")
    assert facts == {
        "hostname": "node1",
        "kernel": "6.8.0-aws",
        "os": "Ubuntu 24.04 LTS",
        "cpu_model": "Intel(R) Xeon(R)",
        "fast_half": [],
        "threads": 8,
        "cores": 4,
        "sockets": 2,
        "smt": True,
        "numa_nodes": {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7], "10": []},
        "mem_total_bytes": 1048576,
        "swap_total_bytes": 0,
        "hypervisor": "Amazon EC2 p4d.24xlarge",
        "container": "docker",
        "clock_source": "kvm-clock",
        "cpu_governor": "powersave",
        "rdma_ports": 2,
    }


def test_bare_metal_on_arm(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "".join(f"processor\t: {i}\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n" for i in range(4)),
        "sys/devices/system/cpu/online": "0-3",
        "sys/class/dmi/id/sys_vendor": "NVIDIA\n",
        "sys/class/dmi/id/product_name": "Grace\n",
        "proc/self/cgroup": "0::/user.slice\n",
    }
    for i in range(4):
        files |= {f"sys/devices/system/cpu/cpu{i}/topology/physical_package_id": "0"}
        files |= {f"sys/devices/system/cpu/cpu{i}/topology/core_id": f"{i}"}
    facts = host_facts(write_tree(tmp_path, files))
    assert (facts["threads"], facts["cores"], facts["sockets"], facts["smt"]) == (4, 4, 1, False)
    assert facts["hypervisor"] is None
    assert facts["container"] is None
    assert "0xd4f" in facts["cpu_model"]


def test_a_tree_with_nothing_in_it_gives_unknowns(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    unknown = ("os", "cpu_model", "threads", "cores", "sockets", "smt", "mem_total_bytes", "hypervisor", "clock_source")
    unknown += ("rdma_ports",)
    assert {facts[name] for name in unknown} == {None}


@pytest.mark.parametrize(
    ("line", "formats"),
    [
        ("flags\t: fpu avx2 f16c", []),  # converts float16, and computes in single precision
        ("flags\t: avx2 avx512f avx512bw", ["bfloat16"]),
        ("flags\t: avx512bw avx512_bf16 avx512_fp16", ["bfloat16", "float16"]),
        ("Features\t: fp asimd fphp asimdhp bf16", ["bfloat16", "float16"]),
        ("cpu MHz\t: 2000", None),
    ],
)
def test_formats_of_half_precision_by_what_the_processor_reports(
    tmp_path: Path, line: str, formats: list[str] | None
) -> None:
    root = write_tree(tmp_path, {"proc/cpuinfo": f"processor\t: 0\n{line}\n"})
    assert host_facts(root)["fast_half"] == formats


def test_the_real_host_as_json() -> None:
    facts = json.loads(json.dumps(host_facts()))
    assert facts["threads"] >= 1
    assert facts["mem_total_bytes"] > 0
    assert facts["hostname"]


@pytest.mark.parametrize(("times", "slow"), [(1.0, False), (1.9, False), (2.0, True), (40.0, True)])
def test_products_of_denormal_numbers_are_compared_with_others(
    monkeypatch: pytest.MonkeyPatch, times: float, *, slow: bool
) -> None:
    calls: list[bool] = []

    def duration_ns(values: NDArray[np.float32], product: NDArray[np.float32]) -> int:
        denormal = bool((values.view(np.int32) < 0x00800000).all())
        calls.append(denormal)
        disturbed = 50 if len(calls) % 3 else 1  # by another program, most of the time
        product[:] = values
        return int(1000 * (times if denormal else 1.0) * disturbed)

    monkeypatch.setattr(topology, "_duration_ns", duration_ns)
    assert slow_denormals() is slow
    assert calls.count(True) == calls.count(False)


def test_the_product_that_is_timed_is_one_of_denormal_numbers() -> None:
    values, product = np.full(4, 1e-39, np.float32), np.zeros(4, np.float32)
    assert topology._duration_ns(values, product) > 0
    assert product.tolist() == pytest.approx([9e-40] * 4, rel=1e-3)


def test_a_thread_that_takes_denormal_numbers_for_zero_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def flushed_ns(values: NDArray[np.float32], product: NDArray[np.float32]) -> int:
        product[:] = np.where(values.view(np.int32) < 0x00800000, 0.0, values)
        return 1000

    monkeypatch.setattr(topology, "_duration_ns", flushed_ns)
    assert slow_denormals() is None
