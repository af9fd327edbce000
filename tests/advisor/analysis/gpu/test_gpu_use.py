"""GPUs from recordings: which rank runs on which, and what each did in the steady steps."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import gpu_steps, plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.advisor.verdict.diagnose import diagnose

A100 = "NVIDIA A100-SXM4-40GB"
GIB = 1 << 30


def device(index: int, **given: Any) -> dict[str, Any]:
    """A GPU as the agent writes it down."""
    usual = {"name": A100, "uuid": f"GPU-0000000{index}-aaaa", "pci_bus_id": f"0:{index}0:0", "nvlinks": 0}
    return {"index": index, "mem_total_bytes": 40 * GIB, "pcie_gen_max": 4, "pcie_width_max": 16, **usual, **given}


def cuda(uuid: str | None = None, **given: Any) -> dict[str, Any]:
    return {"cuda": {"device": 0, "uuid": uuid, "visible": None, "memory_bytes": 40 * GIB, **given}}


def levels(value: float, seconds: int = 10) -> Series:
    return series(*((t, value) for t in range(seconds)))


def recorded(
    samples: dict[tuple[str, str], Series] | None = None,
    devices: list[dict[str, Any]] | None = None,
    facts: dict[int, dict[str, Any]] | None = None,
    **more: Any,
) -> Recording:
    """Nine seconds of two ranks on GPUs 0 and 1, unless the facts say otherwise."""
    known = [device(0), device(1)] if devices is None else devices
    environment = {"gpus": known, **more.pop("environment", {})}
    who = facts or {100: cuda("00000000-aaaa"), 101: cuda("00000001-aaaa")}
    about = {"meta": {"environment": environment}, "facts": who, "samples": samples or {}}
    return recording({0: plan(90), 1: plan(90)}, **about, **more)


def on_gpus(*told: Any, **more: Any) -> Analysis:
    return analyse(recorded(*told, **more))


def test_ranks_are_found_by_the_name_that_cuda_gives_their_gpu() -> None:
    swapped = {100: cuda("00000001-aaaa"), 101: cuda("00000000-aaaa")}
    assert [gpu.ranks for gpu in on_gpus(facts=swapped).gpu_view.devices] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("facts", "ranks"),
    [
        ({100: cuda(visible="1,0"), 101: cuda(visible="1,0", device=1)}, [(1,), (0,)]),
        ({100: cuda(visible="GPU-00000001"), 101: cuda(visible="GPU-00000000")}, [(1,), (0,)]),
        ({100: cuda(), 101: cuda(device=1)}, [(0,), (1,)]),
        ({100: cuda(), 101: cuda()}, [(0, 1), ()]),
        ({100: {"cuda": None}, 101: {}}, [(), ()]),
        ({100: cuda(visible="7")}, [(), ()]),
        ({100: cuda("MIG-1111"), 101: cuda("00000000-aaaa")}, [(1,), (0,)]),
    ],
)
def test_older_torch_tells_no_name_and_the_environment_does(
    facts: dict[int, dict[str, Any]], ranks: list[tuple[int, ...]]
) -> None:
    instances = [{"uuid": "MIG-1111", "name": "1g", "mem_total_bytes": GIB}]
    devices = [device(0), device(1, mig_instances=instances, mig=True)]
    assert [gpu.ranks for gpu in on_gpus(devices=devices, facts=facts).gpu_view.devices] == ranks


@pytest.mark.parametrize(
    ("devices", "facts", "ranks"),
    [
        # the driver gave out GPUs 0 and 2 of three: rank 1 is on the one that is missing
        ([device(0), device(2)], {100: cuda("00000000-aaaa"), 101: cuda("00000001-aaaa", device=1)}, [(0,), ()]),
        ([device(0), device(2)], {100: cuda("00000000-aaaa"), 101: cuda(device=1)}, [(0,), ()]),
        ([device(0), device(1)], {100: cuda("00000000-aaaa"), 101: cuda("00000002-aaaa", device=1)}, [(0,), ()]),
        ([device(1), device(2)], {100: cuda(visible="0")}, [(), ()]),
        # who has no names at all counts as CUDA does
        ([device(0, uuid=""), device(1, uuid="")], {100: cuda("99"), 101: cuda("98", device=1)}, [(0,), (1,)]),
    ],
)
def test_a_rank_on_a_gpu_that_the_driver_does_not_give_out_is_on_no_other(
    devices: list[dict[str, Any]], facts: dict[int, dict[str, Any]], ranks: list[tuple[int, ...]]
) -> None:
    view = on_gpus(devices=devices, facts=facts).gpu_view
    assert [gpu.ranks for gpu in view.devices] == ranks
    if 101 in facts and not ranks[1]:
        assert 1 in view.unseen and view.why_unseen


def test_cuda_orders_unlike_gpus_by_speed_unless_told() -> None:
    devices = [device(0, name="small"), device(1, name="large")]
    facts = {100: cuda(), 101: cuda(device=1)}
    assert [gpu.ranks for gpu in on_gpus(devices=devices, facts=facts).gpu_view.devices] == [(), ()]
    told = {100: cuda(order="PCI_BUS_ID"), 101: cuda(device=1, order="PCI_BUS_ID")}
    assert [gpu.ranks for gpu in on_gpus(devices=devices, facts=told).gpu_view.devices] == [(0,), (1,)]
    variables = {"variables": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}
    found = on_gpus(devices=devices, facts=facts, environment=variables).gpu_view.devices
    assert [gpu.ranks for gpu in found] == [(0,), (1,)]


def of(analysis: Analysis, name: str, index: int = 1) -> float | None:
    return analysis.values.get((name, f"gpu:{index}"))


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


def test_older_drivers_tell_one_thermal_time() -> None:
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
def test_where_no_times_are_kept_looks_must_do(
    reasons: tuple[int, ...], throttled: float | None, capped: float | None
) -> None:
    found = on_gpus({("gpu.clock_reasons", "gpu:1"): series(*((0.5 + 0.8 * t, b) for t, b in enumerate(reasons)))})
    assert of(found, "gpu.throttled_share") == (None if throttled is None else pytest.approx(throttled))
    assert of(found, "gpu.power_capped_share") == (None if capped is None else pytest.approx(capped))


def test_times_count_before_looks() -> None:
    looks_hot = series(*((t, 0x40) for t in range(10)))
    times = {(f"gpu.{kind}_thermal_s", "gpu:1"): steady_counter(0.01) for kind in ("sw", "hw")}
    assert of(on_gpus({("gpu.clock_reasons", "gpu:1"): looks_hot, **times}), "gpu.throttled_share") == pytest.approx(
        0.01
    )


def test_one_rank_may_compute_on_several_gpus() -> None:
    samples = {("gpu.own_processes", f"gpu:{n}"): levels(1) for n in (0, 1)}
    environment = {"gpus": [device(0), device(1), device(2)]}
    facts = {100: cuda("00000000-aaaa")}
    made = recording({0: plan(90)}, meta={"environment": environment}, facts=facts, samples=samples)
    found = analyse(made).gpu_view.devices
    assert [(gpu.ranks, gpu.first_of) for gpu in found] == [((0,), (0,)), ((0,), ()), ((), ())]
    # of several ranks one may hold a context on another's GPU without working there
    assert [gpu.ranks for gpu in on_gpus(samples, facts=facts).gpu_view.devices] == [(0,), ()]


def test_the_power_brake_alone_says_nothing_of_heat() -> None:
    assert of(on_gpus({("gpu.power_brake_s", "gpu:1"): steady_counter(0.0)}), "gpu.throttled_share") is None


def test_what_no_probe_saw_is_missing_with_its_reason() -> None:
    gap = ProbeGap("gpu.sw_thermal_s", "gpu:1", "this GPU or its driver does not report it")
    found = on_gpus({("gpu.util_pct", "gpu:1"): levels(90)}, gaps=(gap,))
    assert found.missing["gpu.throttled_share"] == "GPU 1: this GPU or its driver does not report it"
    assert "namespace" in found.missing["gpu.foreign_processes"]
    lost = ProbeGap("gpu.*", "host", "no NVIDIA driver on this machine")
    assert "no NVIDIA driver" in on_gpus(gaps=(lost,)).missing["gpu.clock_mhz"]


def test_gpus_of_nobody_are_left_out() -> None:
    alone = on_gpus({("gpu.hw_thermal_s", "gpu:1"): steady_counter(0.9)}, facts={100: cuda("00000000-aaaa")})
    assert not any(scope == "gpu:1" for _, scope in alone.values)


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
    ("gens", "width", "told"),
    [
        ((1,) * 10, 16, (None, None)),  # at rest, or really so slow: nobody knows
        ((4,) * 10, 16, (4, 16)),
        ((1,) * 6 + (4,) * 4, 16, (4, 16)),  # what it can do at times it can
        ((1,) * 8 + (4,) * 2, 16, (None, None)),
        ((4,) * 10, 8, (4, None)),
    ],
)
def test_a_link_is_told_only_at_its_best_where_nobody_knows_the_load(
    gens: tuple[int, ...], width: int, told: tuple[int | None, int | None]
) -> None:
    gap = ProbeGap("gpu.util_pct", "gpu:1", "not supported")
    samples = {
        ("gpu.pcie_gen", "gpu:1"): series(*enumerate(map(float, gens))),
        ("gpu.pcie_width", "gpu:1"): levels(width),
    }
    found = on_gpus(samples, facts={101: cuda("00000001-aaaa")}, gaps=(gap,))
    assert (of(found, "gpu.pcie_gen"), of(found, "gpu.pcie_width")) == told
    assert found.missing.get("gpu.pcie_width") == ("GPU 1: not supported" if None in told else None)
    known = {**samples, ("gpu.util_pct", "gpu:1"): levels(90)}
    assert of(on_gpus(known), "gpu.pcie_width") == width


def test_a_slow_slot_shows_by_its_neighbours() -> None:
    devices = [device(0), device(1, pcie_gen_max=3, pcie_width_max=8), device(2, name="another", pcie_gen_max=5)]
    bounds = [(gpu.pcie_gen_max, gpu.pcie_width_max) for gpu in on_gpus(devices=devices).gpu_view.devices]
    assert bounds == [(4, 16), (4, 16), (5, 16)]


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


def test_traffic_by_counters_or_else_by_looks() -> None:
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
    assert of(both, "gpu.pcie_rx_mb_per_s") == pytest.approx(3000), "a counter that wraps tells less than GPM"
    assert of(found, "gpu.nvlink_mb_per_s") == pytest.approx(10_000)
    assert of(found, "gpu.nvlink_mb_per_s", 0) == pytest.approx(4000), "by GPM, where the counters are refused"


def test_energy_of_all_gpus_for_each_sample() -> None:
    one = {("gpu.energy_j", "gpu:0"): steady_counter(300.0)}
    assert on_gpus(one).get("gpu.joules_per_sample") is None  # the other's is not known
    both = on_gpus({**one, ("gpu.energy_j", "gpu:1"): steady_counter(500.0)})
    assert both.get("gpu.watts") == pytest.approx(800)
    assert both.get("gpu.joules_per_sample") == pytest.approx(800 / (2 * 8 / 0.1))


def test_energy_by_the_power_that_is_told_where_none_is_counted() -> None:
    samples = {("gpu.energy_j", "gpu:0"): steady_counter(300.0), ("gpu.power_w", "gpu:0"): levels(999.0)}
    assert on_gpus({**samples, ("gpu.power_w", "gpu:1"): levels(200.0)}).get("gpu.watts") == pytest.approx(500)


def test_energy_is_not_told_of_parts_of_gpus_nor_without_one_of_them() -> None:
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


def test_the_report_tells_the_energy_of_a_sample() -> None:
    samples = {("gpu.energy_j", f"gpu:{n}"): steady_counter(400.0) for n in (0, 1)}
    told = diagnose(recorded(samples)).throughput
    assert (told.watts, told.joules_per_sample) == (pytest.approx(800), pytest.approx(800 / (2 * 8 / 0.1)))
    assert diagnose(recorded({})).throughput.joules_per_sample is None


def test_errors_of_the_run_and_not_of_the_time_before() -> None:
    samples = {
        ("gpu.ecc_uncorrected", "gpu:0"): levels(7),
        ("gpu.ecc_uncorrected", "gpu:1"): series((0, 7), (5, 9)),
        ("gpu.row_remap_pending", "gpu:1"): series((0, 0), (5, 1)),
        ("gpu.xids", "gpu:1"): levels(2),
        ("gpu.xid", "gpu:1"): series((3, 13), (4, 79)),
        ("gpu.lost", "gpu:1"): series((0, 0), (9, 1)),
        ("gpu.lost", "gpu:0"): levels(0),
    }
    found = on_gpus(samples)
    assert of(found, "gpu.uncorrected_errors", 0) == 0 and of(found, "gpu.uncorrected_errors") == 2
    assert of(found, "gpu.row_remap_pending") == 1 and of(found, "gpu.lost") == 1
    assert of(found, "gpu.hardware_xids") == 1
    assert of(found, "gpu.errors_watched") == 4 and of(found, "gpu.errors_watched", 0) == 1
    xids = found.gpu_view.devices[1].xids
    assert [(xid.code, round(xid.t_s)) for xid in xids] == [(13, 5), (79, 6)]


def test_that_a_gpu_answers_is_no_error_looked_for() -> None:
    assert of(on_gpus({("gpu.lost", "gpu:1"): levels(0)}), "gpu.errors_watched") is None


def test_errors_are_known_before_any_step() -> None:
    environment = {"gpus": [device(0)]}
    samples = {("gpu.xids", "gpu:0"): levels(1), ("gpu.xid", "gpu:0"): series((0, 94))}
    made = recording({0: []}, meta={"environment": environment}, facts={100: cuda("00000000-aaaa")}, samples=samples)
    assert of(analyse(made), "gpu.hardware_xids", 0) == 1


def test_nvlinks_up_and_their_errors() -> None:
    samples = {
        ("gpu.nvlinks_active", "gpu:1"): series((0, 12), (5, 9)),
        ("gpu.nvlink_recoveries", "gpu:1"): steady_counter(2),
        ("gpu.nvlink_crc_errors", "gpu:1"): steady_counter(400),
    }
    found = on_gpus(samples, [device(0), device(1, nvlinks=12)])
    assert of(found, "gpu.nvlinks_active") == 9 and of(found, "gpu.nvlink_crc_per_s") == pytest.approx(400)
    assert of(found, "gpu.nvlink_recoveries") == 18  # until the last step
    assert of(found, "gpu.nvlinks_active", 0) == 0  # it has none, which is known
    assert of(on_gpus(devices=[device(0), device(1, nvlinks=None)]), "gpu.nvlinks_active") is None


L40S = "NVIDIA L40S"  # any board that takes a bridge


@pytest.mark.parametrize(
    ("name", "up", "due"),
    [
        (L40S, ((4, 4), (4, 4), (0, 0)), (4, 4, None)),  # whether the third has a bridge nobody knows
        (L40S, ((4, 4), (3, 3), (0, 0)), (4, 4, None)),  # of a bridge that is there a link is down
        (L40S, ((4, 4), (4, 0), (0, 0)), (4, 4, None)),  # it went down in the run
        (L40S, ((4, 0), (4, 0), (0, 0)), (4, 4, 0)),
        (L40S, ((0, 0), (0, 0), (0, 0)), (0, 0, 0)),  # no bridge
        (A100, ((12, 12), (12, 12), (0, 0)), (12, 12, 12)),  # there is no such board without links
        (A100, ((0, 0), (0, 0), (0, 0)), (12, 12, 12)),
    ],
)
def test_which_nvlinks_should_be_up(name: str, up: tuple[tuple[int, int], ...], due: tuple[float | None, ...]) -> None:
    devices = [device(n, name=name, nvlinks=12 if name == A100 else 4, nvlink_switched=False) for n in range(3)]
    samples = {("gpu.nvlinks_active", f"gpu:{n}"): series((0, a), (5, b)) for n, (a, b) in enumerate(up)}
    facts = {100 + n: cuda(f"0000000{n}-aaaa") for n in range(3)}
    environment = {"gpus": devices}
    made = recording({n: plan(90) for n in range(3)}, meta={"environment": environment}, facts=facts, samples=samples)
    found = analyse(made)
    assert tuple(of(found, "gpu.nvlinks_due", n) for n in range(3)) == due
    assert ("GPU 2: no NVLink is up" in found.missing.get("gpu.nvlinks_due", "")) == (None in due)


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
    told = found.gpu_view.path(1, 0)
    assert told is not None and told.path == path


def looks(allocated: list[float], **given: float) -> Any:
    """The allocator in MB, every tenth step; between the looks -1."""
    rows = gpu_steps([{"step": n, "forward": 30} for n in range(len(allocated) * 10)])
    for name, value in {"allocated": -1, "reserved": -1, "peak": -1}.items():
        rows[f"{name}_bytes"] = value
    rows["alloc_retries"] = -1
    at = slice(0, None, 10)
    rows["allocated_bytes"][at] = [round(mb * 1e6) for mb in allocated]
    rows["reserved_bytes"][at] = round(given.get("reserved", 20_000) * 1e6)
    rows["peak_bytes"][at] = round(given.get("peak", 15_000) * 1e6)
    rows["alloc_retries"][at] = [round(n * given.get("retries", 0)) for n in range(len(allocated))]
    return rows


def test_how_full_the_gpu_is_by_torchs_own_count() -> None:
    facts = {101: cuda("00000001-aaaa", memory_bytes=25_000_000_000)}
    found = on_gpus(facts=facts, gpu_steps={1: looks([10_000.0] * 9, retries=2)})
    assert found.by_rank("gpu.reserved_share") == {1: pytest.approx(0.8)}
    assert found.by_rank("gpu.peak_share") == {1: pytest.approx(0.6)}
    assert found.by_rank("gpu.fragmented_share") == {1: pytest.approx(0.25)}
    assert found.by_rank("gpu.alloc_retries")[1] == 14  # those of the warm-up, at the first look, are left out
    assert found.by_rank("gpu.memory_watched") == {1: 8}


def test_memory_that_creeps_by_so_much_a_step() -> None:
    made = recording({1: plan(900)}, gpu_steps={1: looks([10_000 + 20.0 * n for n in range(90)])})
    (trend,) = analyse(made).gpu_view.memory
    assert trend.mb_per_step == pytest.approx(2.0)
    assert trend.growth > 0.1 and trend.thirds_mb[0] < trend.thirds_mb[1] < trend.thirds_mb[2]
    assert trend.left_mb is None  # nobody said how large the GPU is


@pytest.mark.parametrize(
    ("work", "times"),
    [
        ([[3, 1000, 7, 50_000_000], [400, 1000, 7, 78_000_000], [600, 1000, 7, 154_000_000]], 154 / 50),
        # its batch was not seen as other layers began to learn: it is as large as before
        ([[3, 1000, 7, 50_000_000], [500, 2000, 7, 0]], 1.0),
        ([[3, 1000, 7, 0]], 1.0),
        ([], 1.0),
    ],
)
def test_batches_that_grow_with_what_is_held(work: list[list[int]], times: float) -> None:
    held = [10_000 + 20.0 * n for n in range(90)]
    made = recording({1: plan(900)}, gpu_steps={1: looks(held)}, facts={101: {"work": work}})
    (trend,) = analyse(made).gpu_view.memory
    assert trend.batch_times == pytest.approx(times)


def test_no_allocator_no_values() -> None:
    found = on_gpus(gpu_steps={1: gpu_steps([{"step": n, "forward": 30} for n in range(90)])})
    assert not found.has("gpu.memory_watched")


def test_old_recordings_know_less_of_their_gpus() -> None:
    old = [{"index": 0, "name": A100, "uuid": "GPU-1", "pci_bus_id": "x", "mem_total_bytes": 1, "mig_uuids": []}]
    assert on_gpus(devices=old).gpu_view.devices[0].pcie_gen_max is None


def watched(index: int) -> dict[tuple[str, str], Series]:
    """What tells whether a GPU is held back."""
    held = {(f"gpu.{kind}_thermal_s", f"gpu:{index}"): levels(0) for kind in ("sw", "hw")}
    return {("gpu.sm_clock_mhz", f"gpu:{index}"): levels(1400), **held}


def test_a_rank_on_a_gpu_of_which_nothing_was_read_is_unseen() -> None:
    gap = ProbeGap("gpu.*", "host", "driver library and kernel module have different versions")
    blind = on_gpus(devices=[], gaps=(gap,)).gpu_view
    assert (blind.unseen, blind.why_unseen) == ((0, 1), gap.reason)
    one = on_gpus(watched(1)).gpu_view
    assert (one.unseen, one.why_unseen) == ((0,), "its readings stopped early")
    cpu = on_gpus(devices=[], gaps=(gap,), facts={100: {"cuda": None}, 101: {}}).gpu_view
    assert (cpu.unseen, cpu.why_unseen) == ((), "")


@pytest.mark.parametrize(("until_s", "known"), [(60, True), (40, True), (30, False), (5, False)])
def test_readings_that_stop_early_say_nothing_of_the_rest(until_s: int, known: bool) -> None:
    """The probe was given up, or the driver hangs: ninety seconds of steps and the first readings fine."""
    read = {
        ("gpu.hw_thermal_s", "gpu:0"): levels(0, until_s),
        ("gpu.sw_thermal_s", "gpu:0"): levels(0, until_s),
        ("gpu.foreign_processes", "gpu:0"): levels(0, until_s),
        ("gpu.lost", "gpu:0"): levels(0, until_s),
        ("gpu.ecc_uncorrected", "gpu:0"): levels(7, until_s),
        ("gpu.power_w", "gpu:0"): levels(300, until_s),
        ("gpu.sm_clock_mhz", "gpu:0"): levels(1400, until_s),
    }
    about = {"meta": {"environment": {"gpus": [device(0)]}}, "facts": {100: cuda("00000000-aaaa")}}
    analysis = analyse(recording({0: plan(900)}, samples=read, **about))
    names = ("gpu.throttled_share", "gpu.foreign_processes", "gpu.power_w", "gpu.errors_watched")
    assert [("gpu:0" in {scope for n, scope in analysis.values if n == name}) for name in names] == [known] * 4
    view = analysis.gpu_view
    assert (view.unseen, view.why_unseen) == (((), "") if known else ((0,), "its readings stopped early"))


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            "gpu.hw_thermal_s",
            "what held its clocks down is not told (GPU 1: this GPU or its driver does not report it)",
        ),
        ("gpu.sm_clock_mhz", "its clock under load is not told (GPU 1: this GPU or its driver does not report it)"),
    ],
)
def test_a_gpu_that_tells_its_power_alone_is_not_known_to_be_sound(refused: str, words: str) -> None:
    gap = ProbeGap(refused, "gpu:1", "this GPU or its driver does not report it")
    read = {**watched(0), **watched(1), ("gpu.power_w", "gpu:1"): levels(300)}
    mute = on_gpus({key: told for key, told in read.items() if key != (refused, "gpu:1")}, gaps=(gap,))
    assert (mute.gpu_view.unseen, mute.gpu_view.why_unseen) == ((1,), words)
    assert on_gpus(read).gpu_view.unseen == ()


def test_what_no_gpu_of_a_kind_reports_is_told_of_the_first_and_missing_on_each() -> None:
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


def test_xids_that_were_watched_for_a_while_only_are_not_none() -> None:
    early = {("gpu.xids", "gpu:0"): levels(0, 5), ("gpu.lost", "gpu:0"): levels(0, 90)}
    about = {"meta": {"environment": {"gpus": [device(0)]}}, "facts": {100: cuda("00000000-aaaa")}}
    assert of(analyse(recording({0: plan(900)}, samples=early, **about)), "gpu.hardware_xids", 0) is None


def test_of_a_part_of_a_gpu_nothing_is_known() -> None:
    instances = [{"uuid": "MIG-1111", "name": "1g", "mem_total_bytes": GIB}]
    read = {("gpu.power_w", "gpu:0"): levels(300)}
    whole = [device(0, mig=True, mig_instances=instances)]
    view = on_gpus(read, whole, {100: cuda("MIG-1111"), 101: {}}).gpu_view
    assert view.unseen == (0,) and "MIG" in view.why_unseen


def test_what_asking_the_driver_took_is_part_of_the_cost() -> None:
    read = {("gpu.probe_s", "host"): series(*((t, 0.5 + 0.004 * t) for t in range(10)))}
    assert on_gpus(read).overhead.driver_share == pytest.approx(0.004), "opening it aside"
    assert on_gpus({}).overhead.driver_share is None
