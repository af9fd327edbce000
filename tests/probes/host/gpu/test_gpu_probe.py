"""The GPU probe through the real pynvml over a fake driver library: what it reads, and what it says where it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from samples.gpus.machines import A100, H100, RTX3090, gpu, machine

from gpu_playing import CODES, driver, of_gpu, play
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe, WatchedGpu

TWO = machine(H100, 2)


def test_all_that_two_gpus_report(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, ["driver 575.51", "cuda 12090", *gpu(0, H100, cpus="0-3", numa=0)], 2, tmp_path)
    assert output["gaps"] == [[], []]
    first, second = (of_gpu(samples, 0) for samples in output["samples"])
    expected = {
        "gpu.util_pct": 90.0,
        "gpu.mem_used_bytes": 51312485990.0,  # without what the driver reserves for itself
        "gpu.mem_total_bytes": 85520809984.0,
        "gpu.power_w": 581.0,
        "gpu.power_limit_w": 700.0,
        "gpu.energy_j": 5000.0,
        "gpu.sm_clock_mhz": 1921.0,
        "gpu.sm_clock_max_mhz": 1980.0,
        "gpu.mem_clock_mhz": 2619.0,
        "gpu.temp_c": 58.0,
        "gpu.pcie_gen": 5.0,
        "gpu.pcie_width": 16.0,
        "gpu.nvlinks_active": 18.0,
        "gpu.xids": 0.0,
        "gpu.lost": 0.0,
    }
    assert {metric: first[metric] for metric in expected} == expected
    assert first["gpu.hw_thermal_s"] == first["gpu.row_remap_pending"] == first["gpu.ecc_uncorrected"] == 0.0
    assert second["gpu.energy_j"] == 5581.0
    assert second["gpu.pcie_rx_bytes"] == 8.1e8
    assert second["gpu.nvlink_rx_bytes"] == 16.2e6 * 1024
    assert (output["driver"], output["cuda"]) == ("575.51", "12.9")


def test_the_parts_of_a_hopper_are_counted_between_two_readings(fake_driver: Path, tmp_path: Path) -> None:
    first, second = play(fake_driver, TWO, 2, tmp_path)["samples"]
    assert "gpu.tensor_active_pct gpu:1" not in first
    assert second["gpu.tensor_active_pct gpu:1"] == 30.6
    assert second["gpu.sm_active_pct gpu:0"] == 73.8
    assert second["gpu.nvlink_rx_bytes_per_s gpu:0"] == 16_200 * 2**20


@pytest.mark.parametrize(("code", "words"), [(4, "not permitted"), (13, "too old"), (3, "does not report")])
def test_forbidden_gpm_queries_are_a_gap_with_the_reason(
    fake_driver: Path, tmp_path: Path, code: int, words: str
) -> None:
    refused = [f"fail nvmlGpm{name} {code}" for name in ("QueryDeviceSupport", "SampleGet")]
    output = play(fake_driver, [*TWO, *refused], 2, tmp_path)
    assert {metric for metric, *_ in output["gaps"][0]} == {"gpu.*_active_pct"} and output["gaps"][1] == []
    assert all(words in reason for _, _, reason, _ in output["gaps"][0])


def test_what_hardly_moves_is_not_asked_each_second(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, TWO, 7, tmp_path, apart_s=1.0)
    asked = ["gpu.ecc_uncorrected gpu:0" in samples for samples in output["samples"]]
    assert asked == [True, False, False, False, False, True, False]
    assert all("gpu.util_pct gpu:0" in samples for samples in output["samples"])


def test_at_the_end_what_hardly_moves_is_asked_once_more(fake_driver: Path, tmp_path: Path) -> None:
    """A job dies of its memory errors at once, not at their next reading."""
    output = play(fake_driver, [*TWO, "gpu 1 field.4 0 +1"], 4, tmp_path, apart_s=1.0, ends=True)
    assert [samples.get("gpu.ecc_uncorrected gpu:1") for samples in output["samples"]] == [0, None, None, 1]


def test_the_probe_reports_its_cost(fake_driver: Path, tmp_path: Path) -> None:
    costs = [seconds for (seconds,) in play(fake_driver, TWO, 3, tmp_path)["cost"]]
    assert 0 < costs[0] < costs[1] < costs[2]


def test_an_old_driver_lacks_functions_and_reports_the_rest(fake_driver: Path, tmp_path: Path) -> None:
    output = play(
        fake_driver / "old", [*TWO, "driver 470.82.01", *(f"gpu {n} violation.1 0" for n in (0, 1))], 2, tmp_path
    )
    last = of_gpu(output["samples"][1], 0)
    assert last["gpu.mem_used_bytes"] == 51312485990.0 + 6e8  # v1 counts what the driver reserves
    assert last["gpu.clock_reasons"] == last["gpu.ecc_uncorrected"] == 0.0
    functions = {"gpu.*_active_pct", "gpu.foreign_processes", "gpu.foreign_mem_bytes"}
    assert functions <= {gap[0] for gap in output["gaps"][0]}
    assert all("too old" in gap[2] for gaps in output["gaps"] for gap in gaps)


@pytest.mark.parametrize(
    ("version", "unknown"),
    [
        ("550.54.15", {"gpu.power_brake_s", "gpu.recovery_action"}),
        ("570.10", {"gpu.power_brake_s"}),
        ("575.51", set()),
    ],
)
def test_field_values_that_came_after_the_driver_are_replaced_or_a_gap_once(
    fake_driver: Path, tmp_path: Path, version: str, unknown: set[str]
) -> None:
    held = [f"gpu {n} violation.1 0 +20000000" for n in (0, 1)]
    output = play(fake_driver, [*TWO, *held, f"driver {version}"], 3, tmp_path)
    assert {(metric, scope) for metric, scope, _, _ in output["gaps"][0]} == {(metric, "gpu:0") for metric in unknown}
    assert all("too old" in reason and "update" in hint for _, _, reason, hint in output["gaps"][0])
    assert output["gaps"][1:] == [[], []]
    last = of_gpu(output["samples"][2], 1)
    times = {metric: last[metric] for metric in ("gpu.thermal_s", "gpu.hw_thermal_s") if metric in last}
    assert times == ({"gpu.thermal_s": 0.04} if unknown else {"gpu.hw_thermal_s": 0.0})


def test_traffic_that_a_driver_does_not_count_is_measured(fake_driver: Path, tmp_path: Path) -> None:
    lines = [line for line in machine(A100, 1) if " pcie_rx_kb_s " not in line]
    output = play(fake_driver, [*lines, "gpu 0 pcie_rx_kb_s 3000", "driver 535.54.03"], 2, tmp_path)
    assert output["samples"][0]["gpu.pcie_rx_bytes_per_s gpu:0"] == 3e6
    assert not [gap for gap in output["gaps"][0] if "pcie" in gap[0]]


def test_a_field_that_the_driver_does_not_know_is_not_asked_again() -> None:
    probe = GpuProbe()
    probe._nvml = driver({271: CODES["NVML_ERROR_INVALID_ARGUMENT"]})
    watched = WatchedGpu(probe._nvml, GpuDevice(0, "A100", "", "", None), object())
    probe._field_samples(watched, slow=False)
    assert {270, 271} & {field.field for field in watched.fields} == {270}


def test_a_driver_from_before_the_field_values(fake_driver: Path, tmp_path: Path) -> None:
    """Throttle times come from the violation status then, traffic from a measurement of 20 ms."""
    lines = [f"gpu {n} {line}" for n in (0, 1) for line in ("violation.0 0 +500000000", "violation.1 0 +20000000")]
    output = play(fake_driver / "old", [*TWO, *lines, "fail nvmlDeviceGetFieldValues 13"], 3, tmp_path)
    last = of_gpu(output["samples"][2], 0)
    assert last["gpu.power_cap_s"] == 1.0
    assert last["gpu.thermal_s"] == 0.04
    missing = {gap[0] for gap in output["gaps"][0] if gap[1] == "gpu:0"}
    assert {"gpu.ecc_uncorrected", "gpu.row_remap_pending", "gpu.power_brake_s"} <= missing
    assert not {"gpu.power_cap_s", "gpu.sw_thermal_s", "gpu.pcie_rx_bytes"} & missing


def test_traffic_is_measured_on_one_gpu_at_a_time(fake_driver: Path, tmp_path: Path) -> None:
    refused = [line for line in TWO if ".197 " not in line and ".198 " not in line and " gpm" not in line]
    output = play(fake_driver, refused, 4, tmp_path)
    seen = [{n for n in (0, 1) if f"gpu.pcie_rx_bytes_per_s gpu:{n}" in samples} for samples in output["samples"]]
    assert sorted(map(sorted, seen[:2])) == [[0], [1]] and seen[2:] == seen[:2]
    assert output["samples"][0].get("gpu.pcie_rx_bytes_per_s gpu:1", 8.1e8) == 8.1e8


@pytest.mark.parametrize(
    ("parts", "seen"),
    [
        (["fail nvmlGpmSampleGet 4"], [True] * 4),
        (["fail nvmlGpmSampleGet 3 from 3"], [False, False, True, True]),
        (["fail nvmlGpmMetricsGet 999 from 2 until 2"], [False, False, True, False]),
        (["fail nvmlGpmQueryDeviceSupport 13", "fail nvmlGpmSampleAlloc 13"], [True] * 4),
        ([], [False] * 4),
    ],
)
def test_traffic_is_measured_where_gpm_does_not_report_it(
    fake_driver: Path, tmp_path: Path, parts: list[str], seen: list[bool]
) -> None:
    uncounted = [line for line in machine(H100, 1) if ".197 " not in line and ".198 " not in line]
    measured = play(fake_driver, [*uncounted, "gpu 0 pcie_rx_kb_s 77", *parts], 4, tmp_path)["samples"]
    assert [samples.get("gpu.pcie_rx_bytes_per_s gpu:0") == 77_000 for samples in measured] == seen


def test_without_traffic_in_gpm_it_is_measured(fake_driver: Path, tmp_path: Path) -> None:
    without_traffic = [line for line in machine(H100, 1) if not any(f".{n} " in line for n in (20, 21, 197, 198))]
    output = play(fake_driver, without_traffic, 3, tmp_path)
    assert ["gpu.pcie_rx_bytes_per_s gpu:0" in samples for samples in output["samples"]] == [False, True, True]
    assert "gpu.tensor_active_pct gpu:0" in output["samples"][2]


@pytest.mark.parametrize(
    ("refusal", "metrics", "words"),
    [
        ("nvmlDeviceGetPowerUsage 3", ["gpu.power_w"], "does not report"),
        ("nvmlDeviceGetTotalEnergyConsumption 13", ["gpu.energy_j"], "too old"),
        ("nvmlDeviceGetUtilizationRates 4", ["gpu.util_pct"], "not permitted"),
        ("nvmlDeviceGetMemoryInfo_v2 999", ["gpu.mem_used_bytes", "gpu.mem_total_bytes"], "unknown error"),
        ("nvmlDeviceGetTemperature 4711", ["gpu.temp_c"], "NVML_ERROR_4711"),
        ("nvmlGpmSampleGet 4", ["gpu.*_active_pct"], "not permitted"),
        ("nvmlDeviceGetNvLinkState 4", ["gpu.nvlinks_active"], "not permitted"),
        ("nvmlDeviceGetComputeRunningProcesses_v3 4", ["gpu.foreign_processes", "gpu.foreign_mem_bytes"], "permitted"),
    ],
)
def test_what_one_gpu_refuses_is_a_gap_once_and_the_rest_is_reported(
    fake_driver: Path, tmp_path: Path, refusal: str, metrics: list[str], words: str
) -> None:
    output = play(fake_driver, [*TWO, f"fail {refusal} gpu 1"], 2, tmp_path)
    assert [(metric, scope) for metric, scope, _, _ in output["gaps"][0]] == [(m, "gpu:1") for m in metrics]
    assert all(words in reason and hint for _, _, reason, hint in output["gaps"][0])
    assert output["gaps"][1] == []
    for samples in output["samples"]:
        assert not any(f"{metric} gpu:1" in samples for metric in metrics)
        assert len(of_gpu(samples, 1)) > 20


def test_gpus_of_one_kind_say_once_what_none_of_them_reports(fake_driver: Path, tmp_path: Path) -> None:
    script = [*machine(H100, 4), *gpu(4, A100, cpus="0-3", numa=0), "fail nvmlDeviceGetPowerUsage 3"]
    gaps = play(fake_driver, script, 2, tmp_path)["gaps"][0]
    assert [scope for metric, scope, _, _ in gaps if metric == "gpu.power_w"] == ["gpu:0", "gpu:4"]


def test_a_gpu_without_ecc_is_not_asked_for_its_errors(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, machine(RTX3090, 1), 1, tmp_path)
    assert output["devices"][0]["ecc"] is False
    assert not [gap for gap in output["gaps"][0] if "ecc" in gap[0] or "row" in gap[0]]
    refused = play(fake_driver, [*machine(H100, 1), "fail nvmlDeviceGetEccMode 4"], 1, tmp_path)
    assert refused["devices"][0]["ecc"] is None and "gpu.ecc_uncorrected gpu:0" in refused["samples"][0]


def test_a_gpu_whose_ecc_is_off_is_asked_whether_it_must_be_reset(fake_driver: Path, tmp_path: Path) -> None:
    ill = ["gpu 0 ecc 0", "gpu 0 field.230 1", "gpu 0 field.145 1"]
    output = play(fake_driver, [*machine(H100, 1), *ill], 1, tmp_path)
    seen = of_gpu(output["samples"][0], 0)
    assert (seen["gpu.recovery_action"], seen["gpu.row_remap_failed"]) == (1, 1)
    assert "gpu.ecc_uncorrected" not in seen
    old = play(fake_driver, [*machine(RTX3090, 1), "driver 470.82.01"], 1, tmp_path)
    assert not [gap for gap in old["gaps"][0] if "recovery" in gap[0] or "row" in gap[0]]


def test_a_field_that_one_gpu_does_not_know_is_a_gap_of_its_own(fake_driver: Path, tmp_path: Path) -> None:
    without = [line for line in TWO if "gpu 1 field.145 " not in line]
    output = play(fake_driver, without, 2, tmp_path)
    assert [(metric, scope) for metric, scope, _, _ in output["gaps"][0]] == [("gpu.row_remap_failed", "gpu:1")]
    assert output["samples"][1]["gpu.row_remap_failed gpu:0"] == 0.0
    assert output["samples"][1]["gpu.row_remap_pending gpu:1"] == 0.0


@pytest.mark.parametrize(
    ("code", "seen", "gaps"),
    [
        (10, [True, False, True, True], [0, 1, 0, 0]),  # a timeout passes
        (3, [True, False, False, False], [0, 1, 0, 0]),  # what is not supported is not asked again
    ],
)
def test_passing_errors_are_tried_again_and_lasting_ones_are_not(
    fake_driver: Path, tmp_path: Path, code: int, seen: list[bool], gaps: list[int]
) -> None:
    output = play(fake_driver, [*TWO, f"fail nvmlDeviceGetPowerUsage {code} gpu 0 from 2 until 2"], 4, tmp_path)
    assert ["gpu.power_w gpu:0" in samples for samples in output["samples"]] == seen
    assert ["gpu.power_w gpu:1" in samples for samples in output["samples"]] == [True] * 4
    assert [len(tick_gaps) for tick_gaps in output["gaps"]] == gaps


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet"])
@pytest.mark.parametrize("code", [15, 16])
def test_a_gpu_lost_in_mid_run_falls_silent_and_the_other_goes_on(
    fake_driver: Path, tmp_path: Path, call: str, code: int
) -> None:
    output = play(fake_driver, [*TWO, f"fail {call} {code} gpu 1 from 3"], 6, tmp_path)
    lost = next(n for n, gaps in enumerate(output["gaps"]) if gaps)
    assert output["samples"][lost]["gpu.lost gpu:1"] == 1.0
    assert all(of_gpu(samples, 1) == {} for samples in output["samples"][lost + 1 :])
    assert len(of_gpu(output["samples"][lost - 1], 1)) > 30
    assert all(len(of_gpu(samples, 0)) > 30 for samples in output["samples"])
    ((metric, scope, reason, hint),) = output["gaps"][lost]
    assert (metric, scope) == ("gpu.*", "gpu:1")
    assert ("fallen off the bus" in reason or "must be reset" in reason) and "Xid" in hint


def test_a_gpu_lost_before_the_start_is_left_out(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, [*TWO, "fail nvmlDeviceGetHandleByIndex_v2 15 gpu 0"], 1, tmp_path)
    assert [device["index"] for device in output["devices"]] == [1]
    assert len(of_gpu(output["samples"][0], 1)) > 30
    assert {scope for _, scope, _, _ in output["gaps"][0]} == {"gpu:0"}


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [(9, "not loaded", "modprobe"), (18, "different versions", "reboot"), (4, "not permitted", "root")],
)
def test_a_driver_that_does_not_open(fake_driver: Path, tmp_path: Path, code: int, words: str, hint: str) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    output = play(fake_driver, [f"fail nvmlInitWithFlags {code}"], 2, tmp_path)
    ((metric, scope, reason, found),) = output["gaps"][0]
    assert (metric, scope) == ("gpu.*", "host")
    assert words in reason
    assert hint in found
    assert output["gaps"][1] == []
    assert output["devices"] == output["paths"] == []


def test_a_machine_without_the_library(tmp_path: Path) -> None:
    try:
        import ctypes

        ctypes.CDLL("libnvidia-ml.so.1")
        pytest.skip("this machine has an NVIDIA driver")
    except OSError:
        pass
    output = play(tmp_path, [], 2, tmp_path)
    ((metric, _, reason, hint),) = output["gaps"][0]
    assert metric == "gpu.*"
    assert "no NVIDIA driver" in reason
    assert hint
    assert output["samples"] == [{}, {}]


def test_a_driver_without_a_gpu(fake_driver: Path, tmp_path: Path) -> None:
    output = play(fake_driver, ["driver 570.10"], 1, tmp_path)
    assert [gap[2] for gap in output["gaps"][0]] == ["the NVIDIA driver sees no GPU"]


def test_importing_the_probe_loads_no_driver() -> None:
    code = "import sys; from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe; GpuProbe(); assert 'pynvml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sum_without_one_of_its_parts_is_not_reported() -> None:
    """It would fall, and what it rises by at the next reading would be errors that nobody had."""
    codes: dict[object, int] = {}
    probe = GpuProbe()
    probe._nvml = driver(codes)
    watched = WatchedGpu(probe._nvml, GpuDevice(0, "A100", "", "", None, nvlinks=12), object())
    readings = []
    for failing in ({}, {45: CODES["NVML_ERROR_TIMEOUT"]}, {}):
        codes.clear()
        codes.update(failing)
        readings.append({sample.metric: sample.value for sample in probe._field_samples(watched, slow=True)})
    assert [samples.get("gpu.nvlink_crc_errors") for samples in readings] == [14.0, None, 14.0]
    assert [samples.get("gpu.nvlink_recoveries") for samples in readings] == [14.0] * 3
    assert [gap.metric for gap in probe._gaps.take()] == ["gpu.nvlink_crc_errors"]
