"""Whole machines through the fake driver: how their GPUs are connected, MIG, Xids, neighbours, and what goes wrong on some of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples.gpus.machines import A100, L40S, MACHINES, gpu, machine, uuid

from gpu_playing import of_gpu, play, processes
from rn50_advisor.probes.host.gpu.gpu_devices import cpu_list

ANSWERED = {"8xA100": 8, "8xH100": 8, "4xL40S": 4, "2xRTX3090": 2, "1xH200": 1, "MIG": 2}


@pytest.mark.parametrize(("name", "count"), ANSWERED.items())
def test_sound_machines_are_described(fake_driver: Path, tmp_path: Path, name: str, count: int) -> None:
    output = play(fake_driver, MACHINES[name](), 2, tmp_path)
    assert [device["uuid"] for device in output["devices"]] == [uuid(n) for n in range(count)]
    assert len(output["paths"]) == count * (count - 1) // 2
    for samples in output["samples"]:
        for index in range(count):
            seen = of_gpu(samples, index)
            assert {"gpu.power_w", "gpu.sm_clock_mhz", "gpu.pcie_width", "gpu.xids", "gpu.power_cap_s"} <= set(seen)
    assert output["gaps"][1] == []
    assert all(reason for _, _, reason, _ in output["gaps"][0])


@pytest.mark.parametrize("name", MACHINES)
def test_no_machine_breaks_the_probe(fake_driver: Path, tmp_path: Path, name: str) -> None:
    output = play(fake_driver, MACHINES[name](), 12, tmp_path)
    assert output["samples"][-1] or output["gaps"][0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("8xA100", {"NV12 OK"}),
        ("8xH100", {"NV18 OK"}),
        ("4xL40S", {"PHB OK", "SYS OK"}),
        ("2xRTX3090", {"PHB GNS"}),
    ],
)
def test_how_pairs_are_connected(fake_driver: Path, tmp_path: Path, name: str, expected: set[str]) -> None:
    output = play(fake_driver, MACHINES[name](), 0, tmp_path)
    assert {f"{path['path']} {path['p2p']}" for path in output["paths"]} == expected


def test_bridges_without_a_switch_connect_their_two_ends(fake_driver: Path, tmp_path: Path) -> None:
    ends = {0: (1, 1, 1, 1), 1: (0, 0, 0, 0), 2: (3, 3), 3: (2, 2)}
    links = [f"gpu {a} nvlink.{n} 1 {b}" for a, others in ends.items() for n, b in enumerate(others)]
    counts = [f"gpu {a} field.91 {len(others)}" for a, others in ends.items()]
    output = play(fake_driver, [*machine(L40S, 4), *links, *counts], 0, tmp_path)
    found = {(path["a"], path["b"]): path["path"] for path in output["paths"]}
    assert found[0, 1] == "NV4" and found[2, 3] == "NV2" and found[0, 2] == found[1, 3] == "PHB"
    assert [device["nvlink_switched"] for device in output["devices"]] == [False] * 4


@pytest.mark.parametrize(("status", "word"), [(1, "CNS"), (3, "TNS"), (4, "DR"), (5, "NS"), (6, "?")])
def test_why_two_gpus_cannot_reach_each_other(fake_driver: Path, tmp_path: Path, status: int, word: str) -> None:
    output = play(fake_driver, [*machine(L40S, 2), f"pair 0 1 level 50 p2p {status}"], 0, tmp_path)
    assert (output["paths"][0]["path"], output["paths"][0]["p2p"]) == ("SYS", word)


def test_a_path_that_the_driver_does_not_report_is_unknown(fake_driver: Path, tmp_path: Path) -> None:
    refused = [f"fail nvmlDeviceGet{name} 3" for name in ("TopologyCommonAncestor", "P2PStatus")]
    output = play(fake_driver, [*machine(L40S, 2), *refused], 0, tmp_path)
    assert output["paths"] == [{"a": 0, "b": 1, "path": "?", "p2p": "?"}]


def test_cpus_and_memory_node_near_each_gpu(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, MACHINES["4xL40S"](), 0, tmp_path)
    assert [(d["numa_node"], d["cpus"]) for d in output["devices"]] == [(0, "0-47")] * 2 + [(1, "48-95")] * 2


def test_the_kernel_reports_the_place_where_the_driver_does_not(fake_driver: Path, tmp_path: Path) -> None:
    place = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")
    (place / "local_cpulist").write_text("8-15,24-31\n")
    refused = ["fail nvmlDeviceGetCpuAffinity 3", "fail nvmlDeviceGetMemoryAffinity 3"]
    output = play(fake_driver, [*machine(L40S, 1), *refused], 0, tmp_path)
    assert (output["devices"][0]["numa_node"], output["devices"][0]["cpus"]) == (1, "8-15,24-31")


def test_cpus_are_written_as_the_kernel_writes_them() -> None:
    assert cpu_list(frozenset({0, 1, 2, 5, 7, 8})) == "0-2,5,7-8"
    assert cpu_list(frozenset()) == ""


def test_what_is_static(fake_driver: Path, tmp_path: Path) -> None:
    (device,) = play(fake_driver, machine(A100, 1), 0, tmp_path)["devices"]
    expected = {
        "capability": "8.0",
        "power_limit_default_w": 400.0,
        "power_limit_max_w": 400.0,
        "sm_clock_max_mhz": 1410,
        "pcie_gen_max": 4,
        "pcie_gen_gpu_max": 4,
        "pcie_width_max": 16,
        "ecc": True,
        "gpm": False,
        "nvlinks": 12,
        "nvlink_mb_per_s": 25000,
        "nvlink_switched": True,
        "mig": False,
    }
    assert {name: device[name] for name in expected} == expected


def test_mig_instances_have_memory_and_nothing_else(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, MACHINES["MIG"](), 1, tmp_path)
    cut, whole = output["devices"]
    assert cut["mig"] and not whole["mig"]
    assert [instance["name"].split()[-1] for instance in cut["mig_instances"]] == ["3g.20gb", "1g.5gb", "1g.5gb"]
    samples = output["samples"][0]
    assert samples["gpu.mem_total_bytes mig:0/0"] == 20e9 and samples["gpu.mem_used_bytes mig:0/2"] == 2.5e9
    assert "gpu.util_pct gpu:0" not in samples and "gpu.util_pct gpu:1" in samples
    assert ("gpu.util_pct", "gpu:0") in {(metric, scope) for metric, scope, _, _ in output["gaps"][0]}


def test_refusals_are_gaps_and_no_zeros(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, MACHINES["restricted"](), 2, tmp_path)
    missing = {metric for metric, scope, _, _ in output["gaps"][0] if scope == "gpu:0"}
    for metric in ("gpu.hw_thermal_s", "gpu.ecc_uncorrected", "gpu.*_active_pct", "gpu.xids", "gpu.foreign_processes"):
        assert metric in missing
        assert not any(key.startswith(metric) for samples in output["samples"] for key in samples)
    assert output["gaps"][1] == []


def test_faults_show_in_the_counters(fake_driver: Path, tmp_path: Path) -> None:
    last = play(fake_driver, MACHINES["throttled"](), 3, tmp_path)["samples"][2]
    assert last["gpu.hw_thermal_s gpu:3"] == pytest.approx(1.2) and last["gpu.hw_thermal_s gpu:2"] == 0
    last = play(fake_driver, MACHINES["broken-nvlink"](), 3, tmp_path)["samples"][2]
    assert last["gpu.nvlinks_active gpu:6"] == 4 and last["gpu.nvlinks_active gpu:5"] == 12
    assert last["gpu.nvlink_recoveries gpu:6"] == 4 and last["gpu.nvlink_crc_errors gpu:6"] == 800
    samples = play(fake_driver, MACHINES["failing-memory"](), 25, tmp_path)["samples"]
    assert [s["gpu.xids gpu:5"] for s in samples[19:22]] == [0, 2, 2]
    assert samples[-1]["gpu.row_remap_pending gpu:5"] == 1 and samples[-1]["gpu.recovery_action gpu:5"] == 4


def test_nvlink_5_counts_its_errors_link_by_link(fake_driver: Path, tmp_path: Path) -> None:
    lines = [line for line in gpu(0, A100, cpus="0-3", numa=0) if "field.38 " not in line and "field.59 " not in line]
    links = [f"gpu 0 field.208.{n} {n}" for n in range(1, 12)] + ["gpu 0 field.215.2 5"]
    samples = play(fake_driver, [*lines, *links], 2, tmp_path)["samples"][1]
    assert samples["gpu.nvlink_crc_errors gpu:0"] == 66 and samples["gpu.nvlink_recoveries gpu:0"] == 5


def test_unknown_memory_is_not_reported_as_zero(fake_driver: Path, tmp_path: Path) -> None:
    script = processes(tmp_path, (0, 501, 10**10, 60), (0, 77, 2**64 - 1, 25))
    samples = play(fake_driver, script, 1, tmp_path, own=[501])["samples"][0]
    assert samples["gpu.foreign_processes gpu:0"] == 1
    assert "gpu.foreign_mem_bytes gpu:0" not in samples
