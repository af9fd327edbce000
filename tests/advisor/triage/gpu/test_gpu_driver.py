"""Readings of the driver stand where the analysis of a run finds its own; without a driver there are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap, Reading, Sample
from rn50_advisor.advisor.triage.gpu.gpu_driver import DriverReader, recording_of
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice

DEVICES = tuple(GpuDevice(n, "NVIDIA A100-SXM4-40GB", f"GPU-{n}", "", 40 << 30) for n in range(2))
GAP = ProbeGap("gpu.xids", "gpu:0", "not permitted")


def reading(**values: float) -> Reading:
    return Reading(tuple(Sample(f"gpu.{name}", "gpu:1", value) for name, value in values.items()))


def test_readings_become_series_of_a_job_with_a_rank_on_each_gpu() -> None:
    readings = [(5, reading(util_pct=1.0, power_w=90.0)), (7, reading(util_pct=2.0)), (9, Reading(()))]
    found = recording_of(DEVICES, [GpuConnection(0, 1, "NV12", "OK")], readings, [GAP], {"numa_nodes": {}})
    assert (found.meta.started_ns, found.meta.last_ns) == (5, 9)
    use = found.samples["gpu.util_pct", "gpu:1"]
    assert (use.t_ns.tolist(), use.value.tolist()) == ([5, 7], [1.0, 2.0])
    assert found.samples["gpu.power_w", "gpu:1"].t_ns.tolist() == [5]
    assert [(process.rank, process.role) for process in found.processes] == [(0, "rank"), (1, "rank")]
    by_rank = {process.rank: found.facts[process.pid]["cuda"]["uuid"] for process in found.processes}
    assert by_rank == {0: "GPU-0", 1: "GPU-1"}
    assert [gpu["index"] for gpu in found.meta.environment["gpus"]] == [0, 1]
    assert found.meta.environment["gpu_paths"] == [{"a": 0, "b": 1, "path": "NV12", "p2p": "OK"}]
    assert found.gaps == (GAP,)


def test_without_readings_the_recording_is_empty() -> None:
    found = recording_of((), (), (), (), {})
    assert (found.samples, found.processes, found.meta.last_ns) == ({}, (), 0)


def test_a_machine_without_a_driver_has_no_gpus_and_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found that a real driver could be loaded from."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    reader = DriverReader(tmp_path)
    assert reader.meet() == ()
    assert reader.versions() == (None, None)
    (gap,) = reader.gaps()
    assert gap.metric == "gpu.*"
    reader.begin()
    assert reader.end(at_once=True)
    found = reader.recording()
    assert found.meta.environment["variables"] == {"NCCL_P2P_DISABLE": "1"}
    assert found.processes == ()
