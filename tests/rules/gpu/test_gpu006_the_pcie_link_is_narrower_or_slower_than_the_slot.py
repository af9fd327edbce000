"""GPU006, the PCIe link is narrower or slower than the slot: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from gpu_rule_cases import gpu, on_gpus, on_two_hosts
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def gpu006(
    width: float = 4,
    gen: float = 4,
    carried: float | None = 6000.0,
    *,
    copied: tuple[float, float] | None = None,
    near: float | None = 1.0,
    other: tuple[float, float] = (16, 4),
    **more: Any,
) -> Analysis:
    """GPU 1's link; sixteen lanes of the fourth generation carry 26 GB/s. `copied`: MB/s of both GPUs in a deep window.

    `other`: lanes and generation of GPU 0's.
    """
    values = {"gpu.pcie_width": {0: other[0], 1: width}, "gpu.pcie_gen": {0: other[1], 1: gen}}
    if carried is not None:
        values["gpu.pcie_rx_mb_per_s"] = {0: 900.0, 1: carried}
    ranks = {"gpu.near_cpu_share": {0: 1.0} if near is None else {0: 1.0, 1: near}}
    if copied is not None:
        ranks["kernel.pinned_mb_per_s"] = dict(enumerate(copied))
    return on_gpus(values, ranks=ranks, **more)


TABLE = Table(
    "GPU006",
    gpu006,
    lines={"missing": ({"width": 12}, {"width": 12.1})},
    false_alarms={
        "a full link": {"width": 16},
        "a board that knows no more": {"gpus": (gpu(0), gpu(1, pcie_gen_max=4, pcie_width_max=4))},
        "a link that carries what it should": {"width": 16, "copied": (25_500.0, 0.751 * 26_000)},
        "a machine whose links all carry less": {"width": 16, "copied": (13_000.0, 12_500.0)},
        "copies across the sockets": {"width": 16, "copied": (25_500.0, 13_000.0), "near": 0.0},
        "copies of a rank that may be across the sockets": {
            "width": 16,
            "copied": (25_500.0, 13_000.0),
            "near": None,
        },
    },
    severities=(
        ({"carried": 6500.0}, "critical"),  # the link is busy all the time: three quarters of it are lost
        ({"carried": 3000.0}, "high"),
        ({"carried": 1000.0}, "medium"),
        ({"carried": 10.0}, "low"),
        ({"carried": None}, "medium"),
        ({"carried": None, "other": (4, 4)}, "low"),  # all alike
        ({"carried": 6500.0, "other": (4, 4)}, "low"),
    ),
    ranks=(1,),
    best=({"carried": 3250.0}, 1 / (1 - 0.5 * 0.75)),
    also_fires={
        "a generation less": {"width": 16, "gen": 3},
        "the first generation": {"width": 16, "gen": 1},
        "a full link that carries half": {"width": 16, "copied": (25_500.0, 13_000.0)},
        "a slot with fewer lanes than its maker gave the board": {
            "width": 8,
            "gpus": (gpu(0), gpu(1, pcie_width_max=8, pcie_width_made=16)),
        },
        "and its rank may run on CPUs of both sockets": {"width": 16, "copied": (25_500.0, 13_000.0), "near": 0.5},
    },
    not_measured={
        "one of its GPUs": ({"width": 16, "blind": {"gpu.pcie_width": 0}}, ("gpu.pcie_width",)),
        "what the slot can do": ({"gpus": (gpu(0), gpu(1, pcie_gen_max=None))}, ("gpu.pcie_width",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu006_promises_a_certain_gain_only_if_the_link_is_always_busy() -> None:
    idle, busy = (found("GPU006", TABLE.job(carried=mb_per_s, slow=0.0)).saving for mb_per_s in (1000.0, 6500.0))
    assert idle is not None and busy is not None
    assert idle.speedup[0] == 1.0 and busy.speedup[0] == pytest.approx(4.0)
    capped = found("GPU006", TABLE.job(carried=6500.0, slow=0.6)).saving
    assert capped is not None and capped.speedup == pytest.approx((1 / 0.6, 1 / 0.6))  # the other rank needs as long
    note = found("GPU006", TABLE.job()).evidence[0].note
    assert "4 lanes of generation 4 under load, could be 16 lanes of generation 4" in note


def test_gpu006_reports_the_rate_of_copies_on_a_link_that_reports_full_speed() -> None:
    exact, more = (found("GPU006", TABLE.job(width=16, copied=(25_500.0, rate))) for rate in (0.75 * 26_000, 9_000.0))
    assert [finding.evidence[0].metric for finding in (exact, more)] == ["kernel.pinned_mb_per_s"] * 2
    assert more.evidence[0].value == 9_000.0 and "16 lanes of generation 4 carry 26000" in more.evidence[0].note
    narrow = found("GPU006", TABLE.job(copied=(25_500.0, 6_400.0)))
    assert [e.metric for e in narrow.evidence[:2]] == ["kernel.pinned_mb_per_s", "gpu.pcie_width"]


def test_gpu006_notes_links_that_all_gpus_of_a_host_have_alike() -> None:
    note = found("GPU006", TABLE.job(width=8, other=(8, 4), carried=13_000.0))
    assert note.scope.gpus == (0, 1) and note.saving is None
    assert "replace" not in note.fixes[0].title and "by design of the machine" in note.fixes[0].title
    for defect in (
        found("GPU006", TABLE.job(width=4, other=(8, 4))),
        found("GPU006", TABLE.job(width=8, gen=3, other=(8, 4))),
    ):
        assert defect.scope.gpus == (0, 1) and "replace the node" in defect.fixes[0].title
    slow = found("GPU006", TABLE.job(width=8, other=(8, 4), copied=(12_800.0, 6_000.0)))
    assert slow.scope.gpus == (1,) and "replace the node" in slow.fixes[0].title, "it carries less than its like"


def test_gpu006_compares_links_and_copies_within_a_host() -> None:
    """All links of the second host are built so; those of the first host do not count for them, and its own short one is none."""
    widths = {"gpu.pcie_width": {0: 16, 1: 4, 2: 8, 3: 8}, "gpu.pcie_gen": dict.fromkeys(range(4), 4)}
    finding = found("GPU006", gpu_jobs.on_gpus(widths, gpus=on_two_hosts()))
    assert finding.scope.gpus == (1,) and "GPU 1 of node-a" in finding.fixes[0].title
    full = {"gpu.pcie_width": dict.fromkeys(range(4), 16), "gpu.pcie_gen": dict.fromkeys(range(4), 4)}
    ranks = {
        "gpu.near_cpu_share": dict.fromkeys(range(4), 1.0),
        "kernel.pinned_mb_per_s": {0: 25_500.0, 1: 25_000.0, 2: 13_000.0, 3: 12_500.0},
    }
    assert run_rule(RULES["GPU006"], gpu_jobs.on_gpus(full, gpus=on_two_hosts(), ranks=ranks), Config()) == Clear(
        "GPU006"
    )


def alone(width: float, driver: int, made: int | None, carried: float = 6000.0) -> Analysis:
    """A job on the only GPU of its host."""
    only = gpu(1, pcie_width_max=driver, pcie_width_made=made)
    values = {"gpu.pcie_width": {1: width}, "gpu.pcie_gen": {1: 4}, "gpu.pcie_rx_mb_per_s": {1: carried}}
    return on_gpus(values, gpus=(only,))


def test_gpu006_tells_a_board_in_a_narrow_slot_even_if_it_is_the_only_one_and_the_driver_calls_it_its_maximum() -> None:
    finding = found("GPU006", alone(8, driver=8, made=16))
    note = finding.evidence[0].note
    assert "8 lanes of generation 4 under load, could be 16 lanes of generation 4, per data sheet" in note
    assert "the driver's maximum here is 8" in note and finding.evidence[0].threshold == 16
    assert finding.fixes[0].title == "move GPU 1 to a slot with 16 lanes, or reseat it or its riser"
    assert finding.saving is not None and finding.saving.speedup[0] == 1.0
    assert finding.confidence <= 0.6 < found("GPU006", alone(4, driver=8, made=16)).confidence


def test_gpu006_judges_by_the_driver_alone_where_no_data_sheet_states_the_lanes() -> None:
    for made in (None, 8):
        assert run_rule(RULES["GPU006"], alone(8, driver=8, made=made), Config()) == Clear("GPU006")
    defect = found("GPU006", alone(4, driver=8, made=16))
    assert "replace the node" in defect.fixes[0].title, "the slot has more than the link uses"
