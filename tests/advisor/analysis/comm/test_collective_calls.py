"""Collectives from Python in the account of a step: who waits for whom, what is wire, what is computing; and what links carried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import MS, plan, rank_process, recording, series, step, table
from rn50_advisor.advisor.analysis.comm.collective_calls import per_row
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.attribution import account
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.wording.fact_rows import rows
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

STEPS = 40


def called(steps: range = range(STEPS), **given: float) -> Table:
    """A record a step; names that end in _ns are given in milliseconds."""
    row = {name: round(v * MS) if name.endswith("_ns") else int(v) for name, v in given.items()}
    return table((*COLLECTIVES_FIELDS, "flags"), [{"step": n, "calls": 1, "group_size": 2, **row} for n in steps])


def by_hand(late_ms: float = 0.0, wire_ms: float = 30.0, **more: Any) -> Recording:
    """Two ranks of 100 ms that average gradients between backward and optimizer; rank 1 comes `late_ms` after rank 0."""
    early, late = wire_ms + late_ms, wire_ms
    plans = {0: plan(STEPS, optimizer=10 + early), 1: plan(STEPS, forward=30 + late_ms, optimizer=10 + late)}
    records = {0: called(optimizer_ns=early, **more), 1: called(optimizer_ns=late, **more)}
    return recording(plans, ddp=False, collectives=records)


def test_what_all_ranks_wait_for_is_the_wire_and_no_optimizer() -> None:
    analysis = analyse(by_hand())
    assert analysis.get("comm.wire_s") == pytest.approx(0.030)
    assert analysis.get("comm.skew_s") == pytest.approx(0.0, abs=1e-6)
    assert analysis.budget.critical["optimizer"] == pytest.approx(0.010)
    assert analysis.budget.critical["comm_exposed"] == pytest.approx(0.030)
    assert sum(analysis.budget.critical.values()) == pytest.approx(0.130)
    assert analysis.get("collectives.by_hand_s") == pytest.approx(0.030)


def test_what_only_the_early_rank_waits_for_is_the_late_one() -> None:
    analysis = analyse(by_hand(late_ms=40))
    assert analysis.get("comm.wire_s") == pytest.approx(0.030)
    assert analysis.get("comm.skew_s") == pytest.approx(0.040)
    assert analysis.by_rank("comm.late_share") == {0: 0.0, 1: pytest.approx(1.0)}
    assert analysis.excess[1]["forward"] == pytest.approx(0.040)
    assert analysis.by_rank("comm.exposed_s") == {0: pytest.approx(0.070), 1: pytest.approx(0.030)}


def test_beside_ddp_both_are_waited_for() -> None:
    plans = {rank: plan(STEPS, forward=50) for rank in (0, 1)}
    made = recording(plans, wire_ms=20, collectives={rank: called(forward_ns=20) for rank in (0, 1)})
    analysis = analyse(made)
    assert analysis.get("comm.wire_s") == pytest.approx(0.040)
    assert analysis.budget.critical["forward"] == pytest.approx(0.030)
    assert analyse(replace(made, collectives={})).get("comm.wire_s") == pytest.approx(0.020)


def test_what_is_called_after_the_update_is_known_apart() -> None:
    plans = {rank: plan(STEPS, gap=25 if rank else 35) for rank in (0, 1)}
    calls = {rank: called(gap_ns=20 if rank else 30) for rank in (0, 1)}
    analysis = analyse(recording(plans, wire_ms=20, collectives=calls))
    assert analysis.get("collectives.metrics_s") == pytest.approx(0.020), "on the rank that waits least"
    assert analysis.get("collectives.by_hand_s") == 0.0


NUMBERS = {"library": "", "in_module": False, "calls": 9, "bytes": 9 * 8}


@pytest.mark.parametrize(
    ("site", "by_hand_s", "metrics_s"),
    [
        (NUMBERS, 0.0, 0.030),
        ({**NUMBERS, "library": "lightning", "in_module": True, "for_metrics": True}, 0.0, 0.030),
        ({**NUMBERS, "in_module": True}, 0.020, 0.0),
        ({**NUMBERS, "library": "DeepSpeed"}, 0.020, 0.0),
        ({**NUMBERS, "bytes": 9 * 4096}, 0.020, 0.0),
    ],
)
def test_numbers_exchanged_before_the_update_are_metrics(
    site: dict[str, Any], by_hand_s: float, metrics_s: float
) -> None:
    plans = {rank: plan(STEPS, forward=40, optimizer=35) for rank in (0, 1)}
    calls = {rank: called(forward_ns=10, optimizer_ns=20) for rank in (0, 1)}
    facts: dict[str, Any] = {"collectives": [{**site, "held_ns": [STEPS * 10 * MS, 0, STEPS * 20 * MS, 0, 0]}]}
    made = recording(plans, wire_ms=20, collectives=calls)
    wrapped = analyse(replace(made, facts={100 + rank: {**facts, "ddp": [{}]} for rank in (0, 1)}))
    assert wrapped.get("collectives.metrics_s") == pytest.approx(metrics_s)
    assert wrapped.get("collectives.by_hand_s") == pytest.approx(by_hand_s)
    averaged = analyse(replace(made, facts={100 + rank: facts for rank in (0, 1)}))
    assert averaged.get("collectives.by_hand_s") == pytest.approx(0.020), "without DDP they may be gradients"


@pytest.mark.parametrize(
    ("site", "model_s"),
    [
        ({**NUMBERS, "bytes": 9 * 4096}, 0.015),
        ({**NUMBERS, "bytes": 9 * 4096, "library": "torch"}, 0.015),
        ({**NUMBERS, "in_module": True}, 0.015),
        (NUMBERS, 0.0),
        ({**NUMBERS, "bytes": 9 * 4096, "library": "SyncBatchNorm"}, 0.0),
        ({**NUMBERS, "bytes": 9 * 4096, "library": "FSDP"}, 0.0),
    ],
)
def test_what_the_model_exchanges_is_known_apart(site: dict[str, Any], model_s: float) -> None:
    plans = {rank: plan(STEPS, forward=40, backward=45) for rank in (0, 1)}
    calls = {rank: called(forward_ns=10, backward_ns=5) for rank in (0, 1)}
    facts: dict[str, Any] = {"collectives": [{**site, "held_ns": [STEPS * 10 * MS, STEPS * 5 * MS, 0, 0, 0]}]}
    made = recording(plans, wire_ms=20, collectives=calls)
    wrapped = analyse(replace(made, facts={100 + rank: {**facts, "ddp": [{}]} for rank in (0, 1)}))
    assert wrapped.get("collectives.model_s") == pytest.approx(model_s)
    averaged = analyse(replace(made, facts={100 + rank: facts for rank in (0, 1)}))
    assert averaged.get("collectives.model_s") == pytest.approx(0.010 if model_s else 0.0), "the rest may be gradients"


def test_metrics_are_told_from_buffers_that_ddp_sends_in_the_same_pass() -> None:
    plans = {rank: plan(STEPS, forward=60) for rank in (0, 1)}
    calls = {rank: called(forward_ns=30) for rank in (0, 1)}
    sites = [
        {"library": "DistributedDataParallel", "calls": STEPS, "held_ns": [STEPS * 18 * MS, 0, 0, 0, 0]},
        {**NUMBERS, "held_ns": [STEPS * 12 * MS, 0, 0, 0, 0]},
    ]
    made = recording(plans, wire_ms=20, collectives=calls)
    analysis = analyse(replace(made, facts={100 + rank: {"collectives": sites} for rank in (0, 1)}))
    assert analysis.get("collectives.buffers_s") == pytest.approx(0.018)
    assert analysis.get("collectives.metrics_s") == pytest.approx(0.012)


def with_buffers(made: Recording, buffers_ms: float, others_ms: float = 0.0) -> Recording:
    """The same with the sums of a run's collectives by place: DDP's broadcasts of buffers, and calls of the job's own."""
    sites = [
        {"library": "DistributedDataParallel", "calls": STEPS, "held_ns": [round(STEPS * buffers_ms * MS), 0, 0, 0, 0]},
        {"library": "", "calls": STEPS, "held_ns": [round(STEPS * others_ms * MS), 0, 0, 0, 0]},
    ]
    return replace(made, facts={100 + rank: {"collectives": sites} for rank in (0, 1)})


def test_buffers_that_ddp_sends_are_no_forward_pass_and_no_calls() -> None:
    plans = {0: plan(STEPS, forward=90), 1: plan(STEPS, forward=60, gap=40)}
    calls = {rank: called(calls=0, forward_ns=20 if rank else 50) for rank in (0, 1)}
    made = recording(plans, wire_ms=20, collectives=calls)
    analysis = analyse(with_buffers(made, 40))
    assert analysis.get("collectives.buffers_s") == pytest.approx(0.020), "on the rank that waits least"
    assert analysis.get("comm.wire_s") == pytest.approx(0.040)
    assert analysis.budget.critical["forward"] == pytest.approx(0.040)
    assert analysis.by_rank("collectives.calls") == {} and analysis.get("collectives.metrics_s") is None
    assert analyse(made).get("collectives.buffers_s") is None, "an older recording"


def test_buffers_are_told_from_other_collectives_of_the_forward_pass() -> None:
    plans = {rank: plan(STEPS, forward=60, gap=25) for rank in (0, 1)}
    calls = {rank: called(forward_ns=20, gap_ns=15, call_ns=20) for rank in (0, 1)}
    analysis = analyse(with_buffers(recording(plans, wire_ms=20, collectives=calls), 15, 20))
    assert analysis.get("collectives.buffers_s") == pytest.approx(0.015)
    assert analysis.by_rank("collectives.held_s") == {rank: pytest.approx(0.020) for rank in (0, 1)}
    assert analysis.get("collectives.metrics_s") == pytest.approx(0.015)


def becoming_late(steps: int = 240, onset: int = 120) -> Recording:
    """Rank 1's forward takes 60 ms more from some step on; rank 0 waits for it in a collective of its own calling."""
    plans = {
        0: [step(optimizer=30 + 60 * (n >= onset)) for n in range(steps)],
        1: [step(forward=30 + 60 * (n >= onset), optimizer=30) for n in range(steps)],
    }
    waits = {0: [20 + 60 * (n >= onset) for n in range(steps)], 1: [20] * steps}
    records = {
        rank: table(
            (*COLLECTIVES_FIELDS, "flags"),
            [{"step": n, "calls": 1, "optimizer_ns": ms * MS, "group_size": 2} for n, ms in enumerate(each)],
        )
        for rank, each in waits.items()
    }
    return recording(plans, ddp=False, collectives=records)


def test_a_late_rank_is_distinguished_from_ranks_that_wait_for_it() -> None:
    (change,) = analyse(becoming_late()).changes
    assert (change.rank, change.phase) == (1, "forward") and abs(change.step - 120) <= 2
    (blind,) = analyse(replace(becoming_late(), collectives={})).changes
    assert blind.rank != 1 or blind.phase != "forward"


def test_one_rank_alone_waits_for_nobody() -> None:
    made = recording({0: plan(STEPS)}, collectives={0: called(forward_ns=20)})
    assert analyse(made).budget.critical["forward"] == pytest.approx(0.030)


def test_where_the_gpu_was_timed_the_hosts_wait_is_no_measure() -> None:
    made = by_hand()
    from recordings import gpu_steps

    stream = {"input_wait": 10, "forward": 30, "backward": 50, "optimizer": 40}
    timed = replace(made, gpu_steps={rank: gpu_steps([stream] * STEPS) for rank in (0, 1)})
    assert analyse(timed).get("comm.wire_s") is None


def test_no_phase_gives_more_than_it_has() -> None:
    made = by_hand()
    broken = replace(made, collectives={rank: called(optimizer_ns=500) for rank in (0, 1)})
    steady = steady_steps(all_steps(broken))
    own = account(steady, {}, {}, broken.collectives).own
    assert own[0]["optimizer"] == 0.0 and own[0]["forward"] == pytest.approx(0.030)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (range(40), 5.0),
        (range(0, 40, 10), 0.5),  # a few steps have such calls: the others have none
        (range(30, 40), 1.25),  # of the first steps nothing is known; where calls are rare that reads as none
    ],
)
def test_steps_without_a_record(recorded: range, expected: float) -> None:
    steps = all_steps(recording({0: plan(STEPS)}))[0]
    assert per_row(steps, called(recorded, forward_ns=5), "forward_ns").mean() / MS == pytest.approx(expected)


def test_folded_steps_take_the_usual_share() -> None:
    steps = all_steps(recording({0: plan(STEPS)}))[0]
    folded = replace(steps, count=np.where(np.arange(STEPS) < 10, 3.0, 1.0))
    found = per_row(folded, called(forward_ns=5), "forward_ns") / MS
    assert found[0] == pytest.approx(15.0) and found[-1] == pytest.approx(5.0)


def synchronised(rank_1_ms: float, *, on_device: int = 0) -> Analysis:
    """Batch norm holds rank 0 for 25 ms and rank 1 for so many, of which a late rank's may be more."""
    plans = {0: plan(STEPS, forward=55), 1: plan(STEPS, forward=55)}
    records = {
        0: called(calls=106, norm_calls=106, forward_ns=25, norm_ns=25, on_device=on_device),
        1: called(calls=106, norm_calls=106, forward_ns=rank_1_ms, norm_ns=rank_1_ms, on_device=on_device),
    }
    return analyse(recording(plans, wire_ms=5, collectives=records))


def test_batch_norms_own_time_is_that_of_the_rank_it_holds_shortest() -> None:
    analysis = synchronised(15)
    assert analysis.by_rank("collectives.norm_calls") == {0: 106.0, 1: 106.0}
    assert analysis.get("collectives.norm_s") == pytest.approx(0.015)


def test_what_is_queued_on_a_gpu_has_a_number_but_no_time() -> None:
    analysis = synchronised(15, on_device=106)
    assert analysis.get("collectives.norm_s") is None and analysis.by_rank("collectives.norm_calls")[0] == 106.0


def with_facts(made: Recording, **options: Any) -> Recording:
    model = {
        "total_parameter_size_bytes": 100_000_000,
        "world_size": 2,
        "backend_name": "gloo",
        "file": "t.py",
        "line": 3,
    }
    facts = {100 + rank: {"ddp": [{**model, **options}]} for rank in made.steps}
    return replace(made, facts=facts)


def test_a_links_rate_is_its_bytes_over_the_time_of_the_exchange() -> None:
    made = with_facts(recording({0: plan(STEPS), 1: plan(STEPS)}, wire_ms=200), bucket_bytes=[90, 10])
    analysis = analyse(made)
    # two ranks: each link carries as many bytes as there are gradients, in 200 ms
    assert analysis.get("comm.bus_gb_per_s") == pytest.approx(0.5, rel=0.01)
    assert (analysis.get("comm.buckets"), analysis.get("comm.largest_bucket")) == (2.0, pytest.approx(0.9))
    assert analysis.get("comm.megabytes") == pytest.approx(100.0)


def test_a_compression_hook_halves_the_bytes() -> None:
    made = with_facts(recording({0: plan(STEPS), 1: plan(STEPS)}, wire_ms=200), comm_hook="bf16_compress_hook")
    assert analyse(made).get("comm.megabytes") == pytest.approx(50.0)


@pytest.mark.parametrize(
    "hook", ["powerSGD_hook", "bf16_compress_wrapper.<locals>.bf16_compress_wrapper_hook", "my_fp16_hook"]
)
def test_of_a_hook_that_nobody_knows_there_is_neither_size_nor_rate(hook: str) -> None:
    made = with_facts(recording({0: plan(STEPS), 1: plan(STEPS)}, wire_ms=200), comm_hook=hook, bucket_bytes=[90, 10])
    analysis = analyse(made)
    assert analysis.get("comm.megabytes") is None and analysis.get("comm.bus_gb_per_s") is None
    assert analysis.get("comm.buckets") == 2.0


def test_without_ddp_the_calls_show_the_links_rate() -> None:
    analysis = analyse(by_hand(bytes=60_000_000, bus_bytes=60_000_000))
    assert analysis.get("comm.bus_gb_per_s") == pytest.approx(2.0)
    assert analysis.by_rank("collectives.megabytes") == {0: pytest.approx(60.0), 1: pytest.approx(60.0)}


def test_calls_in_a_tenth_of_the_steps_carry_a_tenth_of_their_bytes_a_step() -> None:
    often = by_hand()
    rarely = {
        rank: called(range(0, STEPS, 10), bytes=60_000_000, bus_bytes=60_000_000, optimizer_ns=30) for rank in (0, 1)
    }
    plans = {n: [step(optimizer=40 if k % 10 == 0 else 10) for k in range(STEPS)] for n in (0, 1)}
    analysis = analyse(recording(plans, ddp=False, collectives=rarely))
    wire_s = analysis.get("comm.wire_s")
    assert wire_s is not None and wire_s < (analyse(often).get("comm.wire_s") or 0.0) / 5
    # 60 MB in the 30 ms of such a step: what is carried is the same however many steps lie between
    assert analysis.get("comm.bus_gb_per_s") == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("device", "backend", "expected"), [("cuda", "gloo", 1.0), ("cuda", "nccl", 0.0), ("cpu", "gloo", 0.0)]
)
def test_gloo_under_gpus_is_known(device: str, backend: str, expected: float) -> None:
    made = with_facts(recording({0: plan(STEPS), 1: plan(STEPS)}), device=device, backend_name=backend)
    assert analyse(made).by_rank("comm.gloo_on_gpu") == {0: expected, 1: expected}


def test_the_fastest_card_that_is_no_loopback() -> None:
    samples = {
        ("net.speed_mbps", "net:eth0"): series((0, 25_000)),
        ("net.speed_mbps", "net:lo"): series((0, 90_000)),
    }
    assert analyse(recording({0: plan(STEPS)}, samples=samples)).get("net.gbit_per_s") == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("backend", "over_sockets", "expected"),
    [
        pytest.param("gloo", None, 25.0, id="gloo goes where traffic is counted"),
        pytest.param("nccl", True, 25.0, id="NCCL says that it goes there too"),
        pytest.param("nccl", None, 200.0, id="it may be InfiniBand, whose traffic nobody counts"),
        pytest.param("nccl", False, 200.0, id="NCCL says so"),
    ],
)
def test_of_several_cards_those_that_carry_the_exchange(
    backend: str, over_sockets: bool | None, expected: float
) -> None:
    cards = {"eth0": (25_000, 9e9), "ib0": (200_000, 0), "eth1": (100_000, 5e6)}
    samples = {("net.speed_mbps", f"net:{name}"): series((0, mbps)) for name, (mbps, _) in cards.items()}
    samples |= {("net.tx_bytes", f"net:{name}"): series((0, 1e6), (9, 1e6 + sent)) for name, (_, sent) in cards.items()}
    made = with_facts(recording({0: plan(STEPS), 1: plan(STEPS)}, samples=samples), backend_name=backend)
    nccl = NcclFacts(transports={"NET/Socket": 2} if over_sockets else {"NET/IB": 2})
    from rn50_advisor.advisor.analysis.comm.collective_calls import network_values

    found = network_values(made, None if over_sockets is None else nccl)
    assert found["net.gbit_per_s", "job"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("transports", "nodes", "expected"),
    [
        ({"NET/Socket": 4, "P2P": 8}, 2, 1.0),
        ({"NET/IB": 4}, 2, 0.0),
        ({"P2P": 8}, 1, 0.0),
        ({"NET/Socket": 4}, 1, 0.0),
        ({}, 2, None),
    ],
)
def test_sockets_between_nodes(transports: dict[str, int], nodes: int, expected: float | None) -> None:
    from rn50_advisor.advisor.analysis.comm.collective_calls import network_values

    nccl = NcclFacts(version="2.21.5", transports=transports, nodes=nodes)
    assert network_values(recording({0: [step()]}), nccl).get(("nccl.socket", "job")) == expected


def test_processes_that_are_no_ranks_have_no_say() -> None:
    made = with_facts(recording({0: plan(STEPS)}), device="cuda")
    other = replace(made, processes=(replace(rank_process(0), role="other", rank=None),))
    assert not analyse(other).by_rank("comm.gloo_on_gpu")


def test_how_many_ranks_have_joined_is_what_they_say_and_not_how_many_there_are() -> None:
    plans = {0: plan(STEPS), 1: plan(STEPS)}
    assert analyse(recording(plans, ddp=False, facts={100: {"group_size": 8}})).get("comm.joined") == 8.0
    assert analyse(recording(plans, ddp=False, facts={100: {"world_size": 2}})).get("comm.joined") is None


def test_reports_show_what_the_ranks_exchange() -> None:
    made = by_hand(late_ms=40, bytes=4e6, bus_bytes=4e6)
    exchange = dict(rows(analyse(made).facts, "exchange"))
    assert exchange["called from Python"] == "1 call, 4 MB; they hold rank 0 for 70.0 ms"
    assert exchange["network transfer"] == "30.0 ms exposed on the rank that arrives last"
    assert exchange["each link"].startswith("0.133 GB/s")
    assert exchange["last to arrive"].startswith("rank 1 in 100 % of the steps, for 40.0 ms")
    report = diagnose(made)
    for page in (text.render(report), markdown.render(report), html.render(report)):
        assert "communication between the ranks" in page.lower() and "0.133 GB/s" in page
