"""What a GPU is and where it sits, for a ticket: reported where it is known, judged only at its power limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.gpu.gpu_checks import described, seen
from rn50_advisor.advisor.triage.gpu.gpu_driver import recording_of
from rn50_advisor.advisor.triage.gpu.gpu_health import analysis_of
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice, MigInstance

A100 = GpuDevice(
    0, "NVIDIA A100-SXM4-40GB", "GPU-0", "00000000:10:00.0", 40 << 30, power_limit_default_w=400.0, nvlinks=12
)


def values(items: Any) -> dict[str, Any]:
    return {item.check.name: item.check.value for item in items}


def readings(*ticks: Mapping[str, float]) -> Recording:
    """Of one GPU, a second apart."""
    pairs = [
        (second * 10**9, Reading(tuple(Sample(name, "gpu:0", value) for name, value in tick.items())))
        for second, tick in enumerate(ticks)
    ]
    return recording_of((A100,), (), pairs, (), {})


def checks(*ticks: Mapping[str, float]) -> dict[str, Found]:
    recording = readings(*ticks)
    a = analysis_of(recording)
    items = seen(recording, a, replace(a.gpu_view.used[0], index=0))
    return {item.check.name: item for item in items if isinstance(item, Found)}


def test_what_is_known_of_a_gpu_is_reported() -> None:
    device = replace(A100, index=5, ecc=True, numa_node=1, cpus="64-127")
    assert values(described([device], [])) == {
        "gpu.5.memory_total_bytes": float(40 << 30),
        "gpu.5.ecc": "on",
        "gpu.5.mig": "off",
        "gpu.5.numa_node": "1",
        "gpu.5.near_cpus": "64-127",
    }


def test_what_is_unknown_is_left_out_or_said_to_be() -> None:
    (ecc, mig) = described([replace(A100, mem_total_bytes=None)], [])
    assert (ecc.check.value, ecc.check.state) == (None, "unknown")  # type: ignore[union-attr]
    assert mig.check.name == "gpu.0.mig"  # type: ignore[union-attr]
    assert list(described([], [])) == []


def test_a_gpu_without_ecc_and_one_that_is_cut_into_instances() -> None:
    instances = tuple(MigInstance(f"MIG-{n}", "3g.20gb", 20 << 30) for n in range(2))
    found = values(described([replace(A100, ecc=False, mig=True, mig_instances=instances)], []))
    assert (found["gpu.0.ecc"], found["gpu.0.mig"]) == ("off, or it has none", "2 instances")


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([(0, n, "NV12", "OK") for n in (1, 2, 3)], "NV12 to 1-3"),
        (
            [(0, 1, "NV4", "OK"), (2, 0, "SYS", "CNS"), (0, 3, "SYS", "CNS")],
            "NV4 to 1; SYS to 2-3 (no peer-to-peer: CNS)",
        ),
        ([(1, 2, "NV12", "OK")], None),  # of others
    ],
)
def test_equal_paths_are_reported_together(paths: list[tuple[Any, ...]], text: str | None) -> None:
    connections = [GpuConnection(*path) for path in paths]
    assert values(described([A100], connections)).get("gpu.0.paths") == text


def test_memory_is_what_was_used_before_anything_was_measured() -> None:
    found = checks({"gpu.mem_used_bytes": 5e8}, {"gpu.mem_used_bytes": 3e10})
    assert found["gpu.0.memory_used_bytes"].check.value == 5e8
    assert "gpu.0.memory_used_bytes" not in checks({"gpu.util_pct": 5.0}, {"gpu.util_pct": 5.0})


@pytest.mark.parametrize(("limit_w", "state"), [(400.0, "ok"), (395.0, "ok"), (250.0, "bad")])
def test_a_power_limit_that_was_lowered_is_to_be_fixed_with_the_command(limit_w: float, state: str) -> None:
    found = checks(*[{"gpu.power_limit_w": limit_w, "gpu.util_pct": 95.0}] * 12)["gpu.0.power_limit_w"]
    assert (found.check.value, found.check.state, found.remedy) == (limit_w, state, "fix")
    assert ("nvidia-smi -i 0 -pl 400" in found.check.hint) == (state == "bad")


def test_errors_of_links_are_reported_and_not_judged_here() -> None:
    ticks = [{"gpu.nvlink_crc_errors": 0.0, "gpu.nvlink_recoveries": 0.0 + (second > 5)} for second in range(12)]
    found = checks(*ticks)
    errors, recoveries = found["gpu.0.nvlink_crc_per_s"].check, found["gpu.0.nvlink_recoveries"].check
    assert (errors.value, recoveries.value) == (0.0, 1.0)
    assert {errors.state, recoveries.state} == {"ok"}
