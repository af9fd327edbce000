"""Waiting for another rank's buffers at the start of a forward pass is not compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from recordings import Plan, gpu_steps, plan, recording, table
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

LATE_MS = 60
USUAL_MS = 30  # of a forward


def seen(plans: Mapping[int, Plan], *, buffers: int | None = 20, backend: str = "gloo") -> Analysis:
    """`buffers`: how many each rank says that DDP sends, None of an older recording that does not say."""
    ddp: dict[str, Any] = {"backend_name": backend, "world_size": len(plans)}
    model = ddp if buffers is None else {**ddp, "synced_buffers": buffers}
    return analyse(recording(plans, facts={100 + rank: {"ddp": [model]} for rank in plans}))


def held_up(by: int, *, ranks: int = 2, phase: str = "gap") -> dict[int, Plan]:
    """One rank spends time between the steps, or waits for input: where buffers are sent the others' forward takes as much longer."""
    late = plan(40, **{phase: LATE_MS + (10 if phase == "input_wait" else 0)})
    return {rank: late if rank == by else plan(40, forward=USUAL_MS + LATE_MS) for rank in range(ranks)}


def forward_ms(analysis: Analysis, rank: int) -> float:
    return 1000 * analysis.budget.per_rank[rank]["forward"]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("phase", ["gap", "input_wait"])
def test_rank_0_that_comes_late_is_late_and_the_others_wait(ranks: int, phase: str) -> None:
    analysis = seen(held_up(0, ranks=ranks, phase=phase))
    assert [forward_ms(analysis, rank) for rank in range(ranks)] == pytest.approx([USUAL_MS] * ranks, abs=2)
    assert analysis.by_rank("comm.late_share")[0] > 0.9
    assert analysis.value("comm.skew_s") == pytest.approx(LATE_MS / 1000, abs=0.003)
    assert analysis.budget.critical["forward"] == pytest.approx(USUAL_MS / 1000, abs=0.002)


@pytest.mark.parametrize(("buffers", "backend"), [(0, "gloo"), (None, "gloo"), (0, "nccl")])
def test_where_no_buffers_are_known_to_be_sent_a_long_forward_is_computing(buffers: int | None, backend: str) -> None:
    analysis = seen(held_up(0), buffers=buffers, backend=backend)
    assert forward_ms(analysis, 1) == pytest.approx(USUAL_MS + LATE_MS)
    assert analysis.by_rank("comm.late_share")[0] == 0


@pytest.mark.parametrize(("backend", "own_ms"), [("gloo", USUAL_MS), ("nccl", USUAL_MS + LATE_MS)])
def test_rank_0_waits_for_who_takes_its_buffers_over_gloo_alone(backend: str, own_ms: float) -> None:
    analysis = seen(held_up(1), backend=backend)
    assert forward_ms(analysis, 0) == pytest.approx(own_ms, abs=2)


def test_a_wait_that_the_recorder_times_is_not_estimated() -> None:
    model = {"backend_name": "gloo", "world_size": 2, "synced_buffers": 20}
    timed = {"ddp": [model], "collectives": [{"library": "DistributedDataParallel"}]}
    plans = held_up(0)
    analysis = analyse(recording(plans, facts={100 + rank: timed for rank in plans}))
    assert forward_ms(analysis, 1) == pytest.approx(USUAL_MS + LATE_MS)


def test_a_rank_whose_forward_is_no_longer_than_the_others_has_not_waited_there() -> None:
    """Over gloo rank 3 takes the buffers from rank 1, and rank 2 from rank 0: it goes on, and waits for rank 1 at the exchange."""
    waiting, apart = plan(40, forward=USUAL_MS + LATE_MS), plan(40, forward=USUAL_MS + 4)
    analysis = seen({0: waiting, 1: plan(40, gap=LATE_MS), 2: apart, 3: waiting})
    assert [forward_ms(analysis, rank) for rank in (0, 1, 3)] == pytest.approx([USUAL_MS] * 3, abs=2)
    assert forward_ms(analysis, 2) == pytest.approx(USUAL_MS, abs=5)
    assert analysis.by_rank("comm.late_share")[1] > 0.9
    for own in analysis.budget.per_rank.values():
        assert sum(own.values()) == pytest.approx(analysis.value("step.time_s"), abs=1e-6)


def test_of_several_micro_batches_the_first_one_waits() -> None:
    late = plan(40, micro_batches=4, input_wait=40 + 4 * LATE_MS)
    analysis = seen({0: late, 1: plan(40, micro_batches=4, input_wait=40, forward=USUAL_MS + LATE_MS)})
    assert forward_ms(analysis, 1) == pytest.approx(USUAL_MS, abs=2)


def test_a_rank_that_computes_longer_waits_for_nobody() -> None:
    analysis = seen({0: plan(40), 1: plan(40, forward=90)})
    assert forward_ms(analysis, 1) == pytest.approx(90)
    assert analysis.by_rank("comm.late_share")[1] > 0.9


def test_who_waits_at_the_forward_and_is_waited_for_at_the_exchange_makes_no_wire() -> None:
    """Caches that went cold while it waited make rank 1's backward longer: rank 0 waits for that at the exchange."""
    cold = plan(40, forward=USUAL_MS + LATE_MS, backward=50 + 20)
    analysis = seen({0: plan(40, gap=LATE_MS), 1: cold})
    assert analysis.value("comm.wire_s") == pytest.approx(0, abs=0.002)


STEPS = 40
IN_PHASES = ("input_wait", "forward", "backward", "optimizer")


def on_gpus(calls: dict[str, int], *, ddp: bool, kind: str = "all_gather") -> Analysis:
    """Rank 1 waits for its input in each step, and the GPU of rank 0 for rank 1, in its forward pass. `calls` of collectives, by column."""
    plans = {0: plan(STEPS, forward=USUAL_MS + LATE_MS), 1: plan(STEPS, input_wait=10 + LATE_MS)}
    on_stream = {rank: gpu_steps([{p: own[p] for p in IN_PHASES} for own in steps]) for rank, steps in plans.items()}
    rows = [{"step": number, **calls} for number in range(STEPS)]
    called = {rank: table((*COLLECTIVES_FIELDS, "flags"), rows) for rank in plans}
    site = {"kind": kind, "calls": STEPS * calls["calls"], "bytes": 0, "ns": 0, "library": ""}
    facts = {100 + rank: {"collectives": [site]} for rank in plans}
    return analyse(recording(plans, wire_ms=5, ddp=ddp, gpu_steps=on_stream, collectives=called, facts=facts))


@pytest.mark.parametrize(
    ("calls", "ddp"),
    [({"calls": 40, "norm_calls": 40, "on_device": 40}, True), ({"calls": 30, "on_device": 30}, False)],
    ids=["synchronised norms", "a sharded model"],
)
def test_a_gpu_that_meets_a_late_rank_in_its_forward_pass_waits_there(calls: dict[str, int], ddp: bool) -> None:
    analysis = on_gpus(calls, ddp=ddp)
    assert [forward_ms(analysis, rank) for rank in (0, 1)] == pytest.approx([USUAL_MS] * 2, abs=2)
    assert analysis.by_rank("comm.late_share")[1] > 0.9
    assert analysis.budget.critical["input_wait"] == pytest.approx((10 + LATE_MS) / 1000, abs=0.003)
    assert (analysis.get("comm.wire_s") is not None) is ddp, (
        "that ranks wait for each other says nothing about the wire"
    )


@pytest.mark.parametrize(
    "calls", [{"calls": 40, "norm_calls": 40}, {"calls": 2, "on_device": 2}], ids=["timed by the host", "metrics"]
)
def test_other_collectives_make_no_waits_within_the_forward_pass(calls: dict[str, int]) -> None:
    assert forward_ms(on_gpus(calls, ddp=True), 0) == pytest.approx(USUAL_MS + LATE_MS, abs=5)


def test_gradients_that_are_averaged_by_hand_make_no_waits_within_the_forward_pass() -> None:
    analysis = on_gpus({"calls": 160, "on_device": 160}, ddp=False, kind="all_reduce")
    assert not analysis.by_rank("comm.late_share") and forward_ms(analysis, 0) > USUAL_MS + LATE_MS - 5
