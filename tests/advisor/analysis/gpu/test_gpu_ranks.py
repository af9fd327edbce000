"""Which GPUs the host has, which rank runs on which, and of which ranks the GPU was not watched."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_recordings import A100, GIB, cuda, device, levels, on_gpus
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Series


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
def test_older_torch_reports_no_name_and_the_environment_is_used(
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
        assert 1 in view.unmonitored and view.why_unmonitored


def test_cuda_orders_unlike_gpus_by_speed_unless_pci_order_is_set() -> None:
    devices = [device(0, name="small"), device(1, name="large")]
    facts = {100: cuda(), 101: cuda(device=1)}
    assert [gpu.ranks for gpu in on_gpus(devices=devices, facts=facts).gpu_view.devices] == [(), ()]
    rank_facts = {100: cuda(order="PCI_BUS_ID"), 101: cuda(device=1, order="PCI_BUS_ID")}
    assert [gpu.ranks for gpu in on_gpus(devices=devices, facts=rank_facts).gpu_view.devices] == [(0,), (1,)]
    variables = {"variables": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}
    found = on_gpus(devices=devices, facts=facts, environment=variables).gpu_view.devices
    assert [gpu.ranks for gpu in found] == [(0,), (1,)]


def test_one_rank_may_compute_on_several_gpus() -> None:
    samples = {("gpu.own_processes", f"gpu:{n}"): levels(1) for n in (0, 1)}
    environment = {"gpus": [device(0), device(1), device(2)]}
    facts = {100: cuda("00000000-aaaa")}
    made = recording({0: plan(90)}, meta={"environment": environment}, facts=facts, samples=samples)
    found = analyse(made).gpu_view.devices
    assert [(gpu.ranks, gpu.first_of) for gpu in found] == [((0,), (0,)), ((0,), ()), ((), ())]
    # of several ranks one may hold a context on another's GPU without working there
    assert [gpu.ranks for gpu in on_gpus(samples, facts=facts).gpu_view.devices] == [(0,), ()]


def test_a_slow_slot_shows_by_its_neighbours() -> None:
    devices = [device(0), device(1, pcie_gen_max=3, pcie_width_max=8), device(2, name="another", pcie_gen_max=5)]
    bounds = [(gpu.pcie_gen_max, gpu.pcie_width_max) for gpu in on_gpus(devices=devices).gpu_view.devices]
    assert bounds == [(4, 16), (4, 16), (5, 16)]


def test_the_lanes_of_a_model_come_from_its_data_sheet_and_are_those_due_in_a_narrow_slot() -> None:
    devices = [device(0, pcie_width_max=8), device(1, name="NVIDIA Z1", pcie_width_max=8), device(2, name="NVIDIA H20")]
    view = on_gpus(devices=devices).gpu_view
    assert [gpu.pcie_width_made for gpu in view.devices] == [16, None, None]
    assert [(gpu.pcie_width_max, gpu.pcie_width_due) for gpu in view.devices] == [(8, 16), (8, 8), (16, 16)]


def test_old_recordings_know_less_of_their_gpus() -> None:
    old = [{"index": 0, "name": A100, "uuid": "GPU-1", "pci_bus_id": "x", "mem_total_bytes": 1, "mig_uuids": []}]
    assert on_gpus(devices=old).gpu_view.devices[0].pcie_gen_max is None


def watched(index: int) -> dict[tuple[str, str], Series]:
    """The series that show whether a GPU is throttled."""
    held = {(f"gpu.{kind}_thermal_s", f"gpu:{index}"): levels(0) for kind in ("sw", "hw")}
    return {("gpu.sm_clock_mhz", f"gpu:{index}"): levels(1400), **held}


def test_a_rank_on_a_gpu_of_which_nothing_was_read_is_unmonitored() -> None:
    gap = ProbeGap("gpu.*", "host", "driver library and kernel module have different versions")
    blind = on_gpus(devices=[], gaps=(gap,)).gpu_view
    assert (blind.unmonitored, blind.why_unmonitored) == ((0, 1), gap.reason)
    one = on_gpus(watched(1)).gpu_view
    assert (one.unmonitored, one.why_unmonitored) == ((0,), "its readings stopped early")
    cpu = on_gpus(devices=[], gaps=(gap,), facts={100: {"cuda": None}, 101: {}}).gpu_view
    assert (cpu.unmonitored, cpu.why_unmonitored) == ((), "")


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
    assert [(0 in {scope for n, scope in analysis.values if n == name}) for name in names] == [known] * 4
    view = analysis.gpu_view
    assert (view.unmonitored, view.why_unmonitored) == (((), "") if known else ((0,), "its readings stopped early"))


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            "gpu.hw_thermal_s",
            "what held its clocks down is not reported (GPU 1: this GPU or its driver does not report it)",
        ),
        ("gpu.sm_clock_mhz", "its clock under load is not reported (GPU 1: this GPU or its driver does not report it)"),
    ],
)
def test_a_gpu_that_reports_only_its_power_is_not_known_to_be_sound(refused: str, words: str) -> None:
    gap = ProbeGap(refused, "gpu:1", "this GPU or its driver does not report it")
    read = {**watched(0), **watched(1), ("gpu.power_w", "gpu:1"): levels(300)}
    mute = on_gpus({key: series for key, series in read.items() if key != (refused, "gpu:1")}, gaps=(gap,))
    assert (mute.gpu_view.unmonitored, mute.gpu_view.why_unmonitored) == ((1,), words)
    assert on_gpus(read).gpu_view.unmonitored == ()


def test_of_a_part_of_a_gpu_nothing_is_known() -> None:
    instances = [{"uuid": "MIG-1111", "name": "1g", "mem_total_bytes": GIB}]
    read = {("gpu.power_w", "gpu:0"): levels(300)}
    whole = [device(0, mig=True, mig_instances=instances)]
    view = on_gpus(read, whole, {100: cuda("MIG-1111"), 101: {}}).gpu_view
    assert view.unmonitored == (0,) and "MIG" in view.why_unmonitored
