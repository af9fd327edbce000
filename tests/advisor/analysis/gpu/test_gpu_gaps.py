"""Why a value of a GPU is missing: what the probe reported about its readings."""

from __future__ import annotations

from gpu_recordings import cuda, device, levels, of, on_gpus
from rn50_advisor.advisor.model.metrics import ProbeGap


def test_what_no_probe_saw_is_missing_with_its_reason() -> None:
    gap = ProbeGap("gpu.sw_thermal_s", "gpu:1", "this GPU or its driver does not report it")
    found = on_gpus({("gpu.util_pct", "gpu:1"): levels(90)}, gaps=(gap,))
    assert found.missing["gpu.throttled_share"] == "GPU 1: this GPU or its driver does not report it"
    assert "namespace" in found.missing["gpu.foreign_processes"]
    lost = ProbeGap("gpu.*", "host", "no NVIDIA driver on this machine")
    assert "no NVIDIA driver" in on_gpus(gaps=(lost,)).missing["gpu.clock_mhz"]


def test_the_first_gpus_reason_is_used_for_all_gpus_of_a_model_that_report_nothing() -> None:
    gap = ProbeGap("gpu.sm_clock_mhz", "gpu:0", "not permitted")
    other = {100: cuda("00000001-aaaa")}  # nobody trains on GPU 0
    assert on_gpus(facts=other, gaps=(gap,)).missing["gpu.clock_mhz"] == "GPU 1: not permitted"
    devices = [device(0, name="another"), device(1)]
    assert "under load" in on_gpus(None, devices, other, gaps=(gap,)).missing["gpu.clock_mhz"]


def test_errors_that_could_not_be_looked_for_are_missing_with_their_reason() -> None:
    gap = ProbeGap("gpu.xids", "gpu:1", "not permitted")
    read = {("gpu.lost", "gpu:1"): levels(0), ("gpu.ecc_uncorrected", "gpu:1"): levels(0)}
    found = on_gpus(
        {**read, ("gpu.nvlinks_active", "gpu:1"): levels(12)}, [device(0), device(1, nvlinks=12)], gaps=(gap,)
    )
    assert found.missing["gpu.hardware_xids"] == "GPU 1: not permitted"
    assert found.missing["gpu.nvlink_recoveries"] == "too few readings in the run"
    assert of(found, "gpu.hardware_xids") is None and of(found, "gpu.uncorrected_errors") == 0
    without = on_gpus(read, [device(n, ecc=False) for n in (0, 1)])
    assert "gpu.uncorrected_errors" not in without.missing, "they count none"


def test_that_another_gpu_is_out_of_reach_says_nothing_of_this_one() -> None:
    lost = ProbeGap("gpu.*", "gpu:0", "the driver has lost it")
    assert "under load" in on_gpus(facts={100: cuda("00000001-aaaa")}, gaps=(lost,)).missing["gpu.clock_mhz"]
    own = ProbeGap("gpu.*", "gpu:1", "the driver has lost it")
    assert on_gpus(gaps=(own,)).missing["gpu.clock_mhz"] == "GPU 1: the driver has lost it"
