"""Clocks of GPUs, at work and among their peers."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.gpu.gpu_driver import recording_of
from rn50_advisor.advisor.triage.gpu.gpu_health import analysis_of, health
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice


@pytest.mark.parametrize(("worked", "share"), [(10, 0.3), (5, 0.6), (3, 1.0), (2, None)])
def test_clocks_are_held_down_for_a_share_of_the_time_with_work(worked: int, share: float | None) -> None:
    """Each GPU works for a while of the triage: in the rest nothing can hold it down."""

    def reading(second: int) -> Reading:
        held = {"gpu.power_cap_s": 0.3 * second, "gpu.sw_thermal_s": 0.3 * second, "gpu.hw_thermal_s": 0.0}
        values = {"gpu.util_pct": 95.0 * (second < worked), **held}
        return Reading(tuple(Sample(name, "gpu:0", value) for name, value in values.items()))

    device = GpuDevice(0, "NVIDIA A100-SXM4-40GB", "GPU-0", "00000000:10:00.0", 40 << 30)
    readings = [(second * 10**9, reading(second)) for second in range(10)]
    a = analysis_of(recording_of((device,), (), readings, (), {}))
    for name in ("gpu.power_capped_share", "gpu.throttled_share"):
        assert a.values.get((name, 0)) == (pytest.approx(share) if share else None)


def peers(second: int, clocks: tuple[float, float]) -> Reading:
    """Readings of two GPUs at their power limit."""
    samples = [
        Sample(name, f"gpu:{gpu}", value)
        for gpu, clock in enumerate(clocks)
        for name, value in (
            ("gpu.util_pct", 95.0),
            ("gpu.sm_clock_mhz", clock),
            ("gpu.power_cap_s", 0.9 * second),
            ("gpu.power_limit_w", 400.0),
        )
    ]
    return Reading(tuple(samples))


@pytest.mark.parametrize(
    ("alone", "together", "state"),
    [
        ((1300.0, 1000.0), (1300.0, 1290.0), "ok"),  # each had other work at the time
        ((1300.0, 1290.0), (1300.0, 1000.0), "bad"),
    ],
)
def test_clocks_are_compared_while_all_gpus_have_the_same_work(
    alone: tuple[float, float], together: tuple[float, float], state: str
) -> None:
    readings = [(second * 10**9, peers(second, together if second >= 10 else alone)) for second in range(20)]
    devices = tuple(GpuDevice(n, "NVIDIA A100-SXM4-40GB", f"GPU-{n}", "", 40 << 30) for n in range(2))
    recording = recording_of(devices, (), readings, (), {})
    found = {
        item.check.name: item.check for item in health(recording, (10 * 10**9, 19 * 10**9)) if isinstance(item, Found)
    }
    assert found["gpu.1.power_capped_share"].state == state
    assert found["gpu.1.sustained_clock_mhz"].value == pytest.approx(together[1])
    assert found["gpu.0.sustained_clock_mhz"].hint == "over the 9 s in which all GPUs worked at once"
