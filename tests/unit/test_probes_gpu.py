"""The GPU probe through the real pynvml over a fake driver library, and the reading of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.metrics import SAMPLES
from probes.host.gpu import ALL_METRICS, GpuDevice, visible_devices

FAKE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "fake_driver" / "build.py"))

GPU = """\
gpu {0} name NVIDIA H100 80GB HBM3
gpu {0} uuid GPU-{0}{0}{0}{0}0000-1111
gpu {0} pci 00000000:{0}F:00.0
gpu {0} util 87
gpu {0} mem_total 85520809984
gpu {0} mem_used 1000000000
gpu {0} mem_reserved 600000000
gpu {0} power_mw 312500
gpu {0} power_limit_mw 700000
gpu {0} energy_mj 5000000 +350000
gpu {0} sm_clock 1755
gpu {0} sm_clock_max 1980
gpu {0} mem_clock 2619
gpu {0} temp 61
"""
TWO = GPU.format(0) + GPU.format(1)
# Takes `ticks` readings and prints all that the probe says.
PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from probes.host.gpu import GpuProbe
probe = GpuProbe(Path(sys.argv[2]))
devices = [dataclasses.asdict(d) for d in probe.devices()]
ticks = [probe.sample(n, []) for n in range(int(sys.argv[1]))]
print(json.dumps({
    "devices": devices,
    "driver": probe.driver_version,
    "cuda": probe.cuda_version,
    "samples": [{s.metric + " " + s.scope: s.value for s in t.samples} for t in ticks],
    "gaps": [[[g.metric, g.scope, g.reason, g.hint] for g in t.gaps] for t in ticks],
}))
"""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if FAKE["compiler"]() is None:
        pytest.skip("THE GPU PROBE IS NOT TESTED HERE: no C compiler to build the fake driver with")
    directory = tmp_path_factory.mktemp("fake_driver")
    FAKE["build"](directory)
    return directory


def play(directory: Path, script: str, ticks: int, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "script").write_text(script)
    environment = os.environ | {"LD_LIBRARY_PATH": str(directory), "FAKE_NVML_SCRIPT": str(tmp_path / "script")}
    command = [sys.executable, "-c", PROGRAM, str(ticks), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def test_all_that_two_gpus_report(driver: Path, tmp_path: Path) -> None:
    said = play(driver, "driver 570.10\ncuda 12080\n" + TWO, 2, tmp_path)
    assert said["gaps"] == [[], []]
    first = {key: value for key, value in said["samples"][0].items() if key.endswith("gpu:1")}
    assert first == {
        "gpu.util_pct gpu:1": 87.0,
        "gpu.mem_used_bytes gpu:1": 1e9,  # without what the driver reserves for itself
        "gpu.mem_total_bytes gpu:1": 85520809984.0,
        "gpu.power_w gpu:1": 312.5,
        "gpu.power_limit_w gpu:1": 700.0,
        "gpu.energy_j gpu:1": 5000.0,
        "gpu.sm_clock_mhz gpu:1": 1755.0,
        "gpu.sm_clock_max_mhz gpu:1": 1980.0,
        "gpu.mem_clock_mhz gpu:1": 2619.0,
        "gpu.temp_c gpu:1": 61.0,
    }
    assert said["samples"][1]["gpu.energy_j gpu:0"] == 5350.0
    assert len(said["samples"][0]) == 20
    assert (said["driver"], said["cuda"]) == ("570.10", "12.8")
    assert said["devices"][1] == {
        "index": 1,
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-11110000-1111",
        "pci_bus_id": "00000000:1F:00.0",
        "mem_total_bytes": 85520809984,
        "mig_uuids": [],
    }


def test_every_metric_is_in_the_catalogue() -> None:
    assert {m for m in SAMPLES if m.startswith("gpu.")} == set(ALL_METRICS)


def test_an_old_driver_without_the_second_memory_call(driver: Path, tmp_path: Path) -> None:
    said = play(driver, TWO + "fail nvmlDeviceGetMemoryInfo_v2 13\n", 1, tmp_path)
    assert said["samples"][0]["gpu.mem_used_bytes gpu:0"] == 1.6e9
    assert said["gaps"] == [[]]


@pytest.mark.parametrize(
    ("refusal", "metrics", "words"),
    [
        ("nvmlDeviceGetPowerUsage 3", ["gpu.power_w"], "does not report"),
        ("nvmlDeviceGetTotalEnergyConsumption 13", ["gpu.energy_j"], "too old"),
        ("nvmlDeviceGetUtilizationRates 4", ["gpu.util_pct"], "not permitted"),
        ("nvmlDeviceGetMemoryInfo_v2 999", ["gpu.mem_used_bytes", "gpu.mem_total_bytes"], "unknown error"),
        ("nvmlDeviceGetTemperature 4711", ["gpu.temp_c"], "NVML_ERROR_4711"),
    ],
)
def test_what_one_gpu_refuses_is_a_gap_once_and_the_rest_is_told(
    driver: Path, tmp_path: Path, refusal: str, metrics: list[str], words: str
) -> None:
    said = play(driver, TWO + f"fail {refusal} gpu 1\n", 2, tmp_path)
    assert [(metric, scope) for metric, scope, _, _ in said["gaps"][0]] == [(m, "gpu:1") for m in metrics]
    assert all(words in reason and hint for _, _, reason, hint in said["gaps"][0])
    assert said["gaps"][1] == []
    for samples in said["samples"]:
        assert len(samples) == 20 - len(metrics)
        assert all(f"{metric} gpu:0" in samples for metric in metrics)


@pytest.mark.parametrize(
    ("code", "seen", "gaps"),
    [
        (10, [True, False, True, True], [0, 1, 0, 0]),  # a timeout passes
        (3, [True, False, False, False], [0, 1, 0, 0]),  # what is not supported is not asked again
    ],
)
def test_passing_errors_are_tried_again_and_lasting_ones_are_not(
    driver: Path, tmp_path: Path, code: int, seen: list[bool], gaps: list[int]
) -> None:
    said = play(driver, TWO + f"fail nvmlDeviceGetPowerUsage {code} gpu 0 from 2 until 2\n", 4, tmp_path)
    assert ["gpu.power_w gpu:0" in samples for samples in said["samples"]] == seen
    assert ["gpu.power_w gpu:1" in samples for samples in said["samples"]] == [True] * 4
    assert [len(told) for told in said["gaps"]] == gaps


def test_a_gpu_lost_in_mid_run_falls_silent_and_the_other_goes_on(driver: Path, tmp_path: Path) -> None:
    calls_of_a_tick = 9  # plus 6 to describe it: handle, memory, PCI, name, UUID, MIG mode
    call = 6 + 2 * calls_of_a_tick + 4
    said = play(driver, TWO + f"fail * 15 gpu 1 from {call} until {call}\n", 5, tmp_path)
    counts = [sum(key.endswith("gpu:1") for key in samples) for samples in said["samples"]]
    assert counts[:2] == [10, 10]
    assert 0 < counts[2] < 10
    assert counts[3:] == [0, 0]
    assert all(sum(key.endswith("gpu:0") for key in samples) == 10 for samples in said["samples"])
    lost = said["gaps"][2]
    assert {metric for metric, _, _, _ in lost} == set(ALL_METRICS)
    assert all(scope == "gpu:1" and "fallen off the bus" in reason and "Xid" in hint for _, scope, reason, hint in lost)
    assert [len(gaps) for gaps in said["gaps"]] == [0, 0, 10, 0, 0]


def test_a_gpu_lost_before_the_start_is_left_out(driver: Path, tmp_path: Path) -> None:
    said = play(driver, TWO + "fail nvmlDeviceGetHandleByIndex_v2 15 gpu 0\n", 1, tmp_path)
    assert [device["index"] for device in said["devices"]] == [1]
    assert len(said["samples"][0]) == 10
    assert {scope for _, scope, _, _ in said["gaps"][0]} == {"gpu:0"}


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [(9, "not loaded", "modprobe"), (18, "different versions", "reboot"), (4, "not permitted", "root")],
)
def test_a_driver_that_does_not_open(driver: Path, tmp_path: Path, code: int, words: str, hint: str) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    said = play(driver, f"fail nvmlInitWithFlags {code}\n", 2, tmp_path)
    ((metric, scope, reason, told),) = said["gaps"][0]
    assert (metric, scope) == ("gpu.*", "host")
    assert words in reason
    assert hint in told
    assert said["gaps"][1] == []
    assert said["devices"] == []


def test_a_machine_without_the_library(tmp_path: Path) -> None:
    try:
        import ctypes

        ctypes.CDLL("libnvidia-ml.so.1")
        pytest.skip("this machine has an NVIDIA driver")
    except OSError:
        pass
    said = play(tmp_path, "", 2, tmp_path)
    ((metric, _, reason, hint),) = said["gaps"][0]
    assert metric == "gpu.*"
    assert "no NVIDIA driver" in reason
    assert hint
    assert said["samples"] == [{}, {}]


def test_a_driver_without_a_gpu(driver: Path, tmp_path: Path) -> None:
    said = play(driver, "driver 570.10\n", 1, tmp_path)
    assert [gap[2] for gap in said["gaps"][0]] == ["the NVIDIA driver sees no GPU"]


def test_mig_instances_are_found(driver: Path, tmp_path: Path) -> None:
    said = play(driver, TWO + "gpu 1 mig MIG-aaaa\ngpu 1 mig MIG-bbbb\n", 0, tmp_path)
    assert [device["mig_uuids"] for device in said["devices"]] == [[], ["MIG-aaaa", "MIG-bbbb"]]


def test_importing_the_probe_loads_no_driver() -> None:
    code = "import sys, probes.host.gpu; probes.host.gpu.GpuProbe(); assert 'pynvml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def gpu(index: int, name: str = "H100", mig: tuple[str, ...] = ()) -> GpuDevice:
    return GpuDevice(index, name, f"GPU-{index}abc-{index}", f"{index}:00.0", 1, mig)


FOUR = [gpu(0), gpu(1), gpu(2), gpu(3, mig=("MIG-3a", "MIG-3b"))]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 3 ", (1, 3)),
        ("0,1,9,2", (0, 1)),
        ("1,-1,2", (1,)),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1,1", ()),
        ("1gpu,2", (1, 2)),
        ("GPU-2abc-2", (2,)),
        ("GPU-3,GPU-0abc", (3, 0)),
        ("GPU-", ()),
        ("GPU-1,GPU-1abc", ()),
        ("GPU-1,GPU-9,GPU-2", (1,)),
        ("MIG-3b", (3,)),
        ("MIG-GPU-2abc-2/7/0", (2,)),
        ("MIG-9", ()),
    ],
)
def test_the_devices_of_a_rank(setting: str | None, expected: tuple[int, ...]) -> None:
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert visible_devices(environment, FOUR) == expected


def test_beginnings_that_fit_two_gpus_end_the_list() -> None:
    twins = [gpu(0), replace(gpu(1), uuid="GPU-0abd-1")]
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-0ab"}, twins) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-0abd"}, twins) == (1,)


def test_ordinals_among_different_gpus_are_known_only_in_bus_order() -> None:
    mixed = [gpu(0, "RTX 3060"), gpu(1, "RTX 4090")]
    assert visible_devices({}, mixed) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1"}, mixed) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}, mixed) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed) == (1,)
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-1"}, mixed) == (1,)


def test_devices_that_the_driver_could_not_describe_keep_their_numbers() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1"}, [gpu(0), gpu(2)]) == (2,)
