"""What each GPU did in the steady steps: clocks, throttling, links, energy, and who else computes on it."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_recordings import cuda, device, levels, of, on_gpus, recorded
from recordings import series, steady_counter
from rn50_advisor.advisor.model.measures.measure import GpuMeasure
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.verdict.diagnose import diagnose


def test_throttling_is_the_largest_of_times_that_overlap() -> None:
    samples = {
        ("gpu.sw_thermal_s", "gpu:1"): steady_counter(0.1),
        ("gpu.hw_thermal_s", "gpu:1"): steady_counter(0.6),
        ("gpu.power_brake_s", "gpu:1"): steady_counter(0.0),
        ("gpu.sw_thermal_s", "gpu:0"): steady_counter(0.0),
        ("gpu.hw_thermal_s", "gpu:0"): steady_counter(0.0),
        ("gpu.power_cap_s", "gpu:1"): steady_counter(0.3),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.throttled_share") == pytest.approx(0.6) and of(found, "gpu.throttled_share", 0) == 0.0
    assert of(found, "gpu.sw_thermal_share") == pytest.approx(0.1)
    assert of(found, "gpu.power_capped_share") == pytest.approx(0.3)


def test_older_drivers_report_one_thermal_time() -> None:
    found = on_gpus({("gpu.thermal_s", "gpu:1"): steady_counter(0.2)})
    assert of(found, "gpu.throttled_share") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("reasons", "throttled", "capped"),
    [
        ((0x40, 0x40, 0x60, 0, 0, 0, 0, 0, 0, 0), 0.3, 0.0),
        ((0x20, 0x20, 0, 0, 0, 0, 0, 0, 0, 0), 0.0, 0.0),  # a flash or two
        ((4,) * 9 + (0,), 0.0, 0.9),
        ((1, 2, 8, 0x10, 0, 0, 0, 0, 0, 0), 0.0, 0.0),  # idle, set clocks, any slowdown, sync boost
        ((0x40, 0x40, 0x40), None, None),
    ],
)
def test_samples_are_used_if_the_gpu_counts_no_times(
    reasons: tuple[int, ...], throttled: float | None, capped: float | None
) -> None:
    found = on_gpus({("gpu.clock_reasons", "gpu:1"): series(*((0.5 + 0.8 * t, b) for t, b in enumerate(reasons)))})
    assert of(found, "gpu.throttled_share") == (None if throttled is None else pytest.approx(throttled))
    assert of(found, "gpu.power_capped_share") == (None if capped is None else pytest.approx(capped))


@pytest.mark.parametrize(
    ("reasons", "share"),
    [((2, 2, 2, 2, 2, 2, 2, 2), 1.0), ((2, 2, 6, 34, 0, 0, 0, 0), 0.5), ((2, 2, 0, 0, 0, 0, 0, 0), 0.0), ((2,), None)],
)
def test_a_clock_setting_is_seen_in_the_samples(reasons: tuple[int, ...], share: float | None) -> None:
    found = on_gpus({("gpu.clock_reasons", "gpu:1"): series(*((0.5 + 0.8 * t, b) for t, b in enumerate(reasons)))})
    assert of(found, "gpu.clock_set_share") == share


def test_counted_times_take_precedence_over_samples() -> None:
    looks_hot = series(*((t, 0x40) for t in range(10)))
    times = {(f"gpu.{kind}_thermal_s", "gpu:1"): steady_counter(0.01) for kind in ("sw", "hw")}
    assert of(on_gpus({("gpu.clock_reasons", "gpu:1"): looks_hot, **times}), "gpu.throttled_share") == pytest.approx(
        0.01
    )


def test_the_power_brake_alone_says_nothing_of_heat() -> None:
    assert of(on_gpus({("gpu.power_brake_s", "gpu:1"): steady_counter(0.0)}), "gpu.throttled_share") is None


def test_gpus_of_nobody_are_left_out() -> None:
    alone = on_gpus({("gpu.hw_thermal_s", "gpu:1"): steady_counter(0.9)}, facts={100: cuda("00000000-aaaa")})
    assert not any(isinstance(name, GpuMeasure) and scope == 1 for name, scope in alone.values)


def test_clocks_and_links_count_only_under_load() -> None:
    busy = series(*((t, 90.0 if t < 6 else 0.0) for t in range(10)))
    samples = {
        ("gpu.util_pct", "gpu:1"): busy,
        ("gpu.sm_clock_mhz", "gpu:1"): series(*((t, 1400.0 if t < 6 else 210.0) for t in range(10))),
        ("gpu.pcie_gen", "gpu:1"): series(*((t, 4.0 if t < 6 else 1.0) for t in range(10))),
        ("gpu.pcie_width", "gpu:1"): levels(16),
        ("gpu.sm_clock_mhz", "gpu:0"): levels(1350),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.clock_mhz") == 1400 and of(found, "gpu.pcie_gen") == 4
    assert of(found, "gpu.peers_clock_mhz") == 1350 and of(found, "gpu.peers_clock_mhz", 0) == 1400


def test_a_link_that_was_hardly_looked_at_under_load_is_not_judged() -> None:
    samples = {
        ("gpu.util_pct", "gpu:1"): series(*((t, 90.0 if t < 2 else 0.0) for t in range(10))),
        ("gpu.pcie_gen", "gpu:1"): levels(1),
        ("gpu.pcie_width", "gpu:1"): levels(16),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.pcie_width") is None and "under load" in found.missing["gpu.pcie_width"]


@pytest.mark.parametrize(
    ("gens", "width", "expected"),
    [
        ((1,) * 10, 16, (None, None)),  # at rest, or really so slow: nobody knows
        ((4,) * 10, 16, (4, 16)),
        ((1,) * 6 + (4,) * 4, 16, (4, 16)),  # what it can do at times it can
        ((1,) * 8 + (4,) * 2, 16, (None, None)),
        ((4,) * 10, 8, (4, None)),
    ],
)
def test_a_link_is_reported_only_at_its_best_if_the_load_is_unknown(
    gens: tuple[int, ...], width: int, expected: tuple[int | None, int | None]
) -> None:
    gap = ProbeGap("gpu.util_pct", "gpu:1", "not supported")
    samples = {
        ("gpu.pcie_gen", "gpu:1"): series(*enumerate(map(float, gens))),
        ("gpu.pcie_width", "gpu:1"): levels(width),
    }
    found = on_gpus(samples, facts={101: cuda("00000001-aaaa")}, gaps=(gap,))
    assert (of(found, "gpu.pcie_gen"), of(found, "gpu.pcie_width")) == expected
    assert found.missing.get("gpu.pcie_width") == ("GPU 1: not supported" if None in expected else None)
    known = {**samples, ("gpu.util_pct", "gpu:1"): levels(90)}
    assert of(on_gpus(known), "gpu.pcie_width") == width


def test_a_gpu_of_nobody_idles_where_it_is_seen_to() -> None:
    facts = {100: cuda("00000000-aaaa")}
    read = {("gpu.util_pct", "gpu:1"): levels(0), ("gpu.mem_used_bytes", "gpu:1"): levels(1e9)}
    whole = {("gpu.mem_total_bytes", "gpu:1"): levels(40e9)}
    assert of(on_gpus({**read, **whole}, facts=facts), "gpu.idle") == 1
    busy = {**read, **whole, ("gpu.util_pct", "gpu:1"): levels(60)}
    held = {**read, **whole, ("gpu.mem_used_bytes", "gpu:1"): levels(9e9)}
    assert [of(on_gpus(samples, facts=facts), "gpu.idle") for samples in (busy, held)] == [0, 0]
    blind = on_gpus(read, facts=facts)
    assert of(blind, "gpu.idle") is None and blind.missing["gpu.idle"] == "too few readings in the run"
    assert of(on_gpus({**read, **whole}), "gpu.idle") is None, "a rank is on it"


def test_traffic_comes_from_counters_or_else_from_samples() -> None:
    samples = {
        ("gpu.pcie_rx_bytes", "gpu:1"): steady_counter(2e9),
        ("gpu.pcie_rx_bytes_per_s", "gpu:0"): levels(5e8),
        ("gpu.nvlink_rx_bytes", "gpu:1"): steady_counter(1e10),
        ("gpu.nvlink_rx_bytes_per_s", "gpu:0"): levels(4e9),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.pcie_rx_mb_per_s") == pytest.approx(2000)
    assert of(found, "gpu.pcie_rx_mb_per_s", 0) == pytest.approx(500)
    both = on_gpus({**samples, ("gpu.pcie_rx_bytes_per_s", "gpu:1"): levels(3e9)})
    assert of(both, "gpu.pcie_rx_mb_per_s") == pytest.approx(3000), "GPM takes precedence over a counter that wraps"
    assert of(found, "gpu.nvlink_mb_per_s") == pytest.approx(10_000)
    assert of(found, "gpu.nvlink_mb_per_s", 0) == pytest.approx(4000), "by GPM, where the counters are refused"


def test_energy_of_all_gpus_for_each_sample() -> None:
    one = {("gpu.energy_j", "gpu:0"): steady_counter(300.0)}
    assert on_gpus(one).get("gpu.joules_per_sample") is None  # the other's is not known
    both = on_gpus({**one, ("gpu.energy_j", "gpu:1"): steady_counter(500.0)})
    assert both.get("gpu.watts") == pytest.approx(800)
    assert both.get("gpu.joules_per_sample") == pytest.approx(800 / (2 * 8 / 0.1))


def test_energy_comes_from_reported_power_if_no_energy_is_counted() -> None:
    samples = {("gpu.energy_j", "gpu:0"): steady_counter(300.0), ("gpu.power_w", "gpu:0"): levels(999.0)}
    assert on_gpus({**samples, ("gpu.power_w", "gpu:1"): levels(200.0)}).get("gpu.watts") == pytest.approx(500)


def test_energy_is_missing_for_gpu_slices_and_if_one_gpu_reports_none() -> None:
    samples = {("gpu.energy_j", f"gpu:{n}"): steady_counter(300.0) for n in (0, 1)}
    assert on_gpus(samples).get("gpu.joules_per_sample") is not None
    assert on_gpus(samples, [device(0), device(1, mig=True)]).get("gpu.joules_per_sample") is None
    elsewhere = {100: cuda("00000000-aaaa"), 101: cuda(visible="7")}
    assert on_gpus(samples, facts=elsewhere).get("gpu.watts") is None, "the second rank's GPU is not known"


@pytest.mark.parametrize(("others", "known"), [(1, False), (0, True)])
def test_a_sample_does_not_cost_what_others_draw_on_the_same_gpu(others: float, known: bool) -> None:
    samples = {("gpu.energy_j", f"gpu:{n}"): steady_counter(300.0) for n in (0, 1)}
    found = on_gpus({**samples, ("gpu.foreign_processes", "gpu:1"): levels(others)})
    assert (found.get("gpu.joules_per_sample") is not None) == known
    assert found.get("gpu.watts") == pytest.approx(600)


def test_the_report_shows_the_energy_of_a_sample() -> None:
    samples = {("gpu.energy_j", f"gpu:{n}"): steady_counter(400.0) for n in (0, 1)}
    throughput = diagnose(recorded(samples)).throughput
    assert (throughput.watts, throughput.joules_per_sample) == (pytest.approx(800), pytest.approx(800 / (2 * 8 / 0.1)))
    assert diagnose(recorded({})).throughput.joules_per_sample is None


def test_strangers_who_stay_and_strangers_who_pass() -> None:
    samples = {
        ("gpu.foreign_processes", "gpu:0"): series((0, 0), (5, 1), (6, 0)),
        ("gpu.foreign_processes", "gpu:1"): levels(2),
        ("gpu.foreign_mem_bytes", "gpu:1"): levels(3e9),
        ("gpu.foreign_sm_pct", "gpu:1"): levels(30),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.foreign_processes", 0) == 0 and of(found, "gpu.foreign_processes") == 2
    assert of(found, "gpu.foreign_mem_mb") == 3000 and of(found, "gpu.foreign_sm_share") == pytest.approx(0.3)


def test_parts_of_the_gpu_at_work() -> None:
    found = on_gpus({("gpu.tensor_active_pct", "gpu:1"): levels(31), ("gpu.sm_active_pct", "gpu:1"): levels(80)})
    assert of(found, "gpu.tensor_active_share") == pytest.approx(0.31)
    assert of(found, "gpu.sm_active_share") == pytest.approx(0.8)


NODES = {"numa_nodes": {"0": list(range(8)), "1": list(range(8, 16))}}


@pytest.mark.parametrize(
    ("allowed", "environment", "near"),
    [
        (list(range(8, 16)), NODES, 1.0),
        (list(range(8)), NODES, 0.0),
        (list(range(16)), NODES, 0.5),
        (list(range(8)), {"numa_nodes": {"0": list(range(16))}}, 1.0),
        (list(range(8)), {}, None),
        (None, NODES, None),
    ],
)
def test_cpus_near_the_gpu(allowed: list[int] | None, environment: dict[str, Any], near: float | None) -> None:
    facts = {101: {**cuda("00000001-aaaa"), "cpus_allowed": allowed}}
    found = on_gpus(devices=[device(0), device(1, cpus="8-15")], facts=facts, environment=environment)
    assert found.by_rank("gpu.near_cpu_share").get(1) == near


@pytest.mark.parametrize(
    ("facts", "path", "pairs"),
    [
        (None, "NV12", 1.0),
        (None, "?", None),
        ({100: cuda("00000000-aaaa")}, "NV12", 0.0),
        ({100: {}}, "NV12", None),
    ],
)
def test_pairs_of_the_jobs_gpus(facts: dict[int, dict[str, Any]] | None, path: str, pairs: float | None) -> None:
    environment = {"gpu_paths": [{"a": 0, "b": 1, "path": path, "p2p": "OK"}]}
    found = on_gpus(facts=facts, environment=environment)
    assert found.get("gpu.pairs") == pairs
    link = found.gpu_view.path(1, 0)
    assert link is not None and link.path == path
