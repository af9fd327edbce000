"""The steps of a rank row by row: phases by the host or the stream, and communication that DDP did not stamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from aged_runs import aged
from recordings import gpu_steps, plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.phases import (
    events_read,
    exchanges,
    exposed_comm,
    lengths_of,
    phases_of,
    split,
)
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import FLAG_NO_OPTIMIZER

HOST = {"input_wait": 60, "forward": 5, "backward": 5, "optimizer": 30}  # runs ahead of the stream and waits there
EXACT = 1e-9
STREAM = {"input_wait": 1, "forward": 45, "backward": 49, "optimizer": 5}


@pytest.mark.parametrize("read", [range(900), [*range(0, 700, 8), *range(700, 900)], range(700, 900)])
def test_the_streams_times_stand_for_steps_whose_own_are_gone(read: Sequence[int]) -> None:
    stream = gpu_steps([{**STREAM, "step": n} for n in read])
    made = aged(recording({0: plan(900, **HOST)}, gpu_steps={0: stream}), 200)
    budget = analyse(made).budget.per_rank[0]
    assert {p: round(1000 * s, 6) for p, s in budget.items() if s > 1e-9} == STREAM


def test_they_do_in_steps_too_long_to_be_folded() -> None:
    seen = [*range(0, 1800, 8), *range(1800, 2400)]  # less than half of all, most of the latest
    stream = gpu_steps([{**STREAM, "step": n} for n in seen])
    budget = analyse(recording({0: plan(2400, **HOST)}, gpu_steps={0: stream})).budget.per_rank[0]
    assert {p: round(1000 * s, 6) for p, s in budget.items() if s > 1e-9} == STREAM


def test_the_cause_of_a_far_longer_step_comes_from_the_host_if_no_event_was_kept() -> None:
    steps = [step(**{**HOST, "input_wait": 2060 if n == 20 else 60}) for n in range(100)]
    stream = gpu_steps([{**STREAM, "step": n} for n in range(100) if n != 20])
    budget = analyse(recording({0: steps}, gpu_steps={0: stream})).budget.per_rank[0]
    assert budget["input_wait"] == pytest.approx((96 * 0.001 + 2.06) / 97, rel=0.01)


@pytest.mark.parametrize("every", [3, 7])
def test_steps_that_ddp_did_not_stamp_are_estimated_from_the_usual_backward(every: int) -> None:
    plans = {0: plan(40), 1: plan(40, forward=80)}
    full, sampled = (analyse(recording(plans, wire_ms=5, stamp_every=n)) for n in (1, every))
    assert sampled.budget.critical == pytest.approx(full.budget.critical)
    assert sampled.budget.per_rank[0] == pytest.approx(full.budget.per_rank[0])
    assert sampled.value("comm.wire_s") == pytest.approx(0.005)


def test_the_streams_own_times_replace_the_hosts() -> None:
    # the host runs ahead: it waits 60 ms for data that the queued kernels hide
    host = plan(30, input_wait=60, forward=5, backward=5, optimizer=30)
    run = recording({0: host}, gpu_steps={0: gpu_steps([STREAM] * 30)})
    budget = analyse(run).budget.per_rank[0]
    assert {p: round(1000 * s) for p, s in budget.items() if s > EXACT} == STREAM


def test_a_stream_seen_in_few_steps_replaces_nothing() -> None:
    seen = [{**STREAM, "step": n} for n in range(10)]
    analysis = analyse(recording({0: plan()}, gpu_steps={0: gpu_steps(seen)}))
    assert analysis.budget.per_rank[0]["input_wait"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("until", "stream"), [pytest.param(1000, True, id="all along"), pytest.param(500, False, id="events that stopped")]
)
def test_blocks_of_steps_with_events_stand_for_those_between(until: int, stream: bool) -> None:
    """Steps so short that only eleven in a hundred have events; one of the others is an evaluation of 8 s."""
    host = plan(1000, input_wait=60, forward=5, backward=5, optimizer=30)
    host[950] = {**host[950], "evaluation": 8000}
    seen = [{**STREAM, "step": n} for n in range(until) if n % 100 < 11]
    budget = analyse(recording({0: host}, gpu_steps={0: gpu_steps(seen)})).budget.per_rank[0]
    assert budget["gap.evaluation"] == pytest.approx(8 / 997)
    assert budget["forward"] == pytest.approx(0.045 if stream else 0.005, rel=0.01)
    assert sum(budget.values()) == pytest.approx(0.1 + 8 / 997, rel=0.001)


def test_the_gap_after_a_step_stands_in_the_next_record_of_the_stream() -> None:
    """An evaluation of 8 s is counted once, and workers that are started after it are waited for as input."""
    host = [step(evaluation=8000) if n == 20 else step() for n in range(50)]
    host[21]["input_wait"], host[21]["loader_start"] = 2010, 2000
    stream = [{**STREAM, "gap": 10_000 if n == 21 else 0} for n in range(50)]
    budget = analyse(recording({0: host}, gpu_steps={0: gpu_steps(stream)})).budget.per_rank[0]
    assert budget["gap"] == pytest.approx(0.0, abs=EXACT)
    assert budget["gap.evaluation"] == pytest.approx(8 / 47)
    assert sum(v for p, v in budget.items() if p.startswith("input_wait")) > 2 / 47


@pytest.mark.parametrize(
    ("flags", "idle_ms", "update_ms"),
    [
        (FLAG_NO_OPTIMIZER, 0, 20),  # the stream still works when the next batch arrives
        (FLAG_NO_OPTIMIZER, 4, 14),  # it had caught up, and idled for as long as the host took at most
        (0, 0, 0),
    ],
)
def test_a_compiled_update_is_no_gap_between_steps(flags: int, idle_ms: float, update_ms: float) -> None:
    """It calls no hook: the gap on the stream begins with the end of the backward pass."""
    host = plan(30, input_wait=4, forward=30, backward=40, optimizer=0, gap=6, flags=flags)
    stream = {"input_wait": idle_ms, "forward": 30, "backward": 50 - idle_ms, "optimizer": 0, "gap": 20}
    run = recording({0: host}, gpu_steps={0: gpu_steps([stream] * 30)})
    budget = analyse(run).budget.per_rank[0]
    whole = sum(stream.values())
    assert budget["optimizer"] / sum(budget.values()) == pytest.approx(update_ms / whole, abs=0.01)
    assert budget["gap"] / sum(budget.values()) == pytest.approx((20 - update_ms) / whole, abs=0.01)


@pytest.mark.parametrize("kernels_ms", [{"forward": 40}, {"forward": 60}])
def test_kernels_of_another_step_never_lengthen_the_step(kernels_ms: Mapping[str, float]) -> None:
    # an evaluation of 100 ms in each step, and on the stream a little less or more than the host's 100 ms besides
    stream = [{**STREAM, **kernels_ms, "gap": 100}] * 30
    analysis = analyse(recording({0: plan(30, evaluation=100)}, gpu_steps={0: gpu_steps(stream)}))
    budget = analysis.budget.per_rank[0]
    assert budget["gap.evaluation"] == pytest.approx(0.1)
    assert budget["unattributed"] == pytest.approx(0.0, abs=EXACT)
    assert sum(budget.values()) == pytest.approx(0.2, abs=EXACT)


@pytest.mark.parametrize("every", [4, 7])
def test_steps_of_any_size_that_ddp_did_not_stamp_are_estimated_from_their_forward(every: int) -> None:
    sizes = np.random.default_rng(1).uniform(0.4, 1.6, 200)
    own = [step(forward=30 * size, backward=60 * size) for size in sizes]
    analysis = analyse(recording({0: own, 1: own}, wire_ms=5, stamp_every=every))
    assert analysis.budget.per_rank[0]["comm_exposed"] == pytest.approx(0.005, rel=0.01)
    assert analysis.budget.critical["backward"] == pytest.approx(0.060 * sizes[3:].mean(), rel=0.01)


def test_the_usual_backward_is_used_if_the_forward_does_not_predict_it() -> None:
    noise = np.random.default_rng(2)
    own = [step(forward=float(noise.uniform(20, 60)), backward=float(noise.uniform(49, 51))) for _ in range(200)]
    analysis = analyse(recording({0: own, 1: own}, wire_ms=5, stamp_every=5))
    assert analysis.budget.per_rank[0]["comm_exposed"] == pytest.approx(0.005, abs=0.0005)


@pytest.mark.parametrize("wire_ms", [0.0, 2.0, 10.0])
def test_computing_that_takes_longer_by_chance_is_no_communication(wire_ms: float) -> None:
    noise = np.random.default_rng(3)
    own = [step(backward=float(noise.normal(50, 3))) for _ in range(2000)]
    analysis = analyse(recording({0: own, 1: own}, wire_ms=wire_ms, stamp_every=5))
    assert analysis.value("comm.wire_s") == pytest.approx(wire_ms / 1e3)
    assert analysis.budget.critical["comm_exposed"] == pytest.approx(wire_ms / 1e3, rel=0.05, abs=1e-4)


def rows_of(made: Recording, rank: int = 0) -> Any:
    return all_steps(made)[rank]


def test_without_events_the_phases_are_the_hosts() -> None:
    made = recording({0: plan(5, clip=2, evaluation=20, checkpoint=5, gap=7)})
    found = {phase: float(seconds[0]) for phase, seconds in phases_of(rows_of(made), None).items()}
    assert found == pytest.approx(
        {
            "input_wait": 0.010,
            "forward": 0.030,
            "backward": 0.050,
            "optimizer": 0.012,
            "gap.evaluation": 0.020,
            "gap.checkpoint": 0.005,
            "gap": 0.007,
        }
    )


def test_the_first_stamps_tell_how_backward_grows_with_batches_of_different_size() -> None:
    """On a GPU, DDP stamps its first ten iterations and then one in a hundred."""
    sizes = [0.6 + 0.8 * (n * 7 % 10) / 9 for n in range(60)]
    own = [step(forward=30 * size, backward=60 * size + 5) for size in sizes]
    made = recording({0: own, 1: own}, wire_ms=5)
    rows = made.comm[0][np.isin(made.comm[0]["step"], [*range(10), 40])]
    rows["forward_ns"] = [round(28e6 * sizes[n]) for n in rows["step"]]
    rows["compute_ns"] = [round(60e6 * sizes[n]) for n in rows["step"]]
    rows["step"][:-1] -= 100  # before the steps that count
    steps = rows_of(made)
    found = exposed_comm(steps, rows, {"forward": steps.columns["forward"], "backward": steps.columns["backward"]})
    assert found is not None and found[1].sum() == 1
    assert found[0].max() < 0.012, "what longer batches compute is no waiting"


@pytest.mark.parametrize(("read", "enough"), [(range(50), True), (range(49), False), (range(0), False)])
def test_events_count_where_most_of_the_latest_steps_have_them(read: range, enough: bool) -> None:
    stream = gpu_steps([{**STREAM, "step": n} for n in read])
    steps = rows_of(recording({0: plan(100)}))
    assert bool(events_read(steps, stream)) is enough
    assert lengths_of(steps, gpu_steps([{**STREAM, "forward": 95, "step": n} for n in read]))[0] == pytest.approx(
        0.15 if enough else 0.1
    )
    assert not events_read(steps, None) and lengths_of(steps, None)[0] == pytest.approx(0.1)


@pytest.mark.parametrize(("batches", "counted", "number"), [(4, 4, 4), (4, 2, 2), (4, 1, 1), (1, 2, 1)])
def test_exchanges_of_a_step_are_what_ddp_counts_but_no_more_than_its_batches(
    batches: int, counted: int, number: int
) -> None:
    own = plan(40, backward=200, micro_batches=batches)
    made = recording({0: own, 1: own}, wire_ms=10)
    made.comm[0]["iteration"] *= counted
    steps = rows_of(made)
    backward = steps.columns["backward"]
    assert exchanges(steps, made.comm[0], backward) == number
    assert exchanges(steps, None, backward) == exchanges(steps, made.comm[0][:1], backward) == 1
    found = exposed_comm(steps, made.comm[0], phases_of(steps, None))
    assert found is not None and found[0] == pytest.approx(0.010 * number) and found[1].all()


@pytest.mark.parametrize(
    ("passes", "counted", "number"),
    [
        pytest.param(8, 8, 8, id="each of eight parts of a batch"),
        pytest.param(7, 8, 8, id="stamped passes that take a little longer than others"),
        pytest.param(8, 1, 1, id="under no_sync"),
        pytest.param(1, 2, 1, id="a model that is called twice for one backward pass"),
        pytest.param(1.4, 2, 1, id="beside the backward pass of another model"),
        pytest.param(2, 3, 2, id="called twice for the first backward pass, once for the second"),
    ],
)
@pytest.mark.parametrize("fed", [0, 1], ids=["without a loader", "a loader's batch is split"])
def test_exchanges_of_a_loop_that_splits_its_batches_itself_are_no_more_than_fit_into_its_backward_time(
    passes: float, counted: int, number: int, fed: int
) -> None:
    own = plan(40, backward=50 * passes - 10, micro_batches=fed)
    made = recording({0: own, 1: own}, wire_ms=10)
    rows = made.comm[0]
    rows["iteration"] *= counted
    rows["compute_ns"] = 40_000_000
    steps = rows_of(made)
    assert exchanges(steps, rows, steps.columns["backward"]) == number
    found = exposed_comm(steps, rows, phases_of(steps, None))
    assert found is not None and found[0] == pytest.approx(0.010 * number)


def test_nobody_who_was_not_stamped_has_exposed_communication() -> None:
    steps = rows_of(recording({0: plan()}))
    parts = split(steps, None, None, None)
    assert parts.exposed is None and not parts.stamped.any()
    other = recording({0: plan(60), 1: plan(60)}, wire_ms=5).comm[0]
    assert exposed_comm(steps, other[40:], phases_of(steps, None)) is None, "stamps of other steps"
