"""Who owns the time of a step: phases, waiting for others, the wire, and the path through the ranks that decides its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import Plan, folded, gpu_steps, plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START, FLAG_NO_LOADER, FLAG_SKIPPED_UPDATE

LATE = {
    "data": ({"input_wait": 110}, "input_wait"),
    "forward": ({"forward": 130}, "forward"),
    "backward": ({"backward": 150}, "backward"),
    "optimizer": ({"optimizer": 110}, "optimizer"),
    "clipping": ({"clip": 100}, "optimizer"),
    "gap": ({"gap": 100}, "gap"),
    "evaluation": ({"evaluation": 100}, "gap.evaluation"),
    "checkpoint": ({"checkpoint": 100}, "gap.checkpoint"),
}
EXACT = 1e-9


def late_rank(cause: str) -> Analysis:
    """Rank 1 needs 100 ms more than rank 0, which needs 100; the wire takes 5."""
    return analyse(recording({0: plan(), 1: plan(30, **LATE[cause][0])}, wire_ms=5))


@pytest.mark.parametrize(
    "plans",
    [
        pytest.param({0: plan()}, id="one rank"),
        pytest.param({0: plan(), 1: plan()}, id="equal ranks"),
        pytest.param({0: plan(), 1: plan(30, input_wait=80), 2: plan(30, gap=40), 3: plan()}, id="four ranks"),
        pytest.param({0: plan(30, evaluation=20, checkpoint=5, clip=3, gap=7)}, id="every phase"),
        pytest.param({0: plan(2)}, id="one steady step"),
    ],
)
@pytest.mark.parametrize("wire", [0.0, 25.0])
def test_the_budget_is_the_whole_step(plans: Mapping[int, Plan], wire: float) -> None:
    analysis = analyse(recording(plans, wire_ms=wire))
    assert analysis.model is not None
    step_s = analysis.model.step_s
    assert sum(analysis.budget.critical.values()) == pytest.approx(step_s, abs=EXACT)
    assert sorted(analysis.budget.per_rank) == sorted(plans)
    for phases in analysis.budget.per_rank.values():
        assert sum(phases.values()) == pytest.approx(step_s, abs=EXACT)
        assert phases["unattributed"] == pytest.approx(0.0, abs=EXACT)


def test_time_that_no_phase_covers_is_unattributed() -> None:
    run = recording({0: plan()})
    run.steps[0]["forward_ns"] -= 12_000_000
    budget = analyse(run).budget
    assert budget.critical["unattributed"] == pytest.approx(0.012)
    assert sum(budget.critical.values()) == pytest.approx(0.1, abs=EXACT)


@pytest.mark.parametrize("cause", LATE)
def test_the_late_rank_and_its_phase_make_the_critical_path(cause: str) -> None:
    analysis, phase = late_rank(cause), LATE[cause][1]
    usual = {"input_wait": 0.01, "forward": 0.03, "backward": 0.05, "optimizer": 0.01}
    critical = analysis.budget.critical
    assert critical[phase] == pytest.approx(usual.get(phase, 0.0) + 0.1)
    assert critical["comm_exposed"] == pytest.approx(0.005), "only the wire"
    assert analysis.budget.per_rank[0]["comm_exposed"] == pytest.approx(0.105), "it waited for rank 1"
    assert analysis.budget.per_rank[1]["comm_exposed"] == pytest.approx(0.005)
    assert analysis.budget.per_rank[0][phase] == pytest.approx(usual.get(phase, 0.0))
    assert analysis.value("comm.wire_s") == pytest.approx(0.005)
    assert analysis.value("comm.skew_s") == pytest.approx(0.1)
    assert analysis.by_rank("comm.late_share") == {0: 0.0, 1: 1.0}
    assert analysis.by_rank("comm.kept_waiting_s") == pytest.approx({0: 0.0, 1: 0.1})
    assert analysis.excess[1][phase] == pytest.approx(0.1)
    assert analysis.by_rank("comm.excess_s") == pytest.approx({0: -0.1, 1: 0.1})


def test_the_model_of_a_late_rank_predicts_the_step_without_its_lateness() -> None:
    model = late_rank("data").model
    assert model is not None
    assert model.step_if({(1, "input_wait"): 0.01}) == pytest.approx(0.105)
    assert model.jitter_s == pytest.approx(0.0)


def test_a_rank_that_stalls_in_few_steps_is_the_one_that_keeps_the_others_waiting() -> None:
    stalled, slow, fast = step(forward=330), step(forward=40), step()
    plans = {0: [slow, fast, slow, fast] * 10, 1: [fast, slow, fast, stalled] * 10}
    analysis = analyse(recording(plans, wire_ms=5))
    late, kept = analysis.by_rank("comm.late_share"), analysis.by_rank("comm.kept_waiting_s")
    assert late == pytest.approx({0: 0.5, 1: 0.5}, abs=0.03)
    assert kept[1] / analysis.value("comm.skew_s") > 0.85 and sum(kept.values()) == pytest.approx(
        analysis.value("comm.skew_s")
    )


def test_ranks_that_take_turns_are_late_half_of_the_time() -> None:
    slow, fast = step(forward=130), step()
    plans = {0: [slow, fast] * 20, 1: [fast, slow] * 20}
    analysis = analyse(recording(plans, wire_ms=5))
    assert analysis.by_rank("comm.late_share") == pytest.approx({0: 0.5, 1: 0.5}, abs=0.03)
    assert analysis.budget.critical["forward"] == pytest.approx(0.13), "somebody is late in every step"
    assert analysis.model is not None
    assert analysis.model.own[0]["forward"] == pytest.approx(0.08, abs=0.003), "each of them only every other step"
    assert analysis.model.jitter_s == pytest.approx(0.05, abs=0.003)
    assert analysis.value("comm.skew_s") == pytest.approx(0.1)


def test_late_steps_that_follow_each_other_are_counted_in_a_row() -> None:
    slow, fast = step(forward=130), step()
    analysis = analyse(recording({0: [fast] * 60, 1: ([slow] * 10 + [fast] * 10) * 3}))
    assert analysis.by_rank("comm.late_run_steps") == {0: 0.0, 1: pytest.approx(10.0, abs=2.0)}
    turns = analyse(recording({0: [slow, fast] * 20, 1: [fast, slow] * 20}))
    assert turns.by_rank("comm.late_run_steps") == {0: 1.0, 1: 1.0}


def test_what_follows_a_backward_delays_the_next_one() -> None:
    # rank 0 is slow after each even step, rank 1 waits for data before each odd one: both come at the same time
    plans = {
        0: [step(gap=100 if n % 2 == 0 else 0) for n in range(40)],
        1: [step(input_wait=110 if n % 2 else 10) for n in range(40)],
    }
    analysis = analyse(recording(plans, wire_ms=5))
    assert analysis.by_rank("comm.late_share") == {0: 0.0, 1: 0.0}
    assert analysis.value("comm.skew_s") == pytest.approx(0.0, abs=EXACT)


def test_gradient_bytes_are_those_of_the_largest_model_wrapped() -> None:
    ddp = {
        rank: {"ddp": [{"total_parameter_size_bytes": 1e6}, {"total_parameter_size_bytes": 100e6}]} for rank in (0, 1)
    }
    facts = {100 + rank: known for rank, known in ddp.items()}
    assert analyse(recording({0: plan(), 1: plan()}, facts=facts)).value("comm.megabytes") == pytest.approx(100.0)
    assert not analyse(recording({0: plan(), 1: plan()})).has("comm.megabytes")


@pytest.mark.parametrize(("more_ms", "late"), [(1.9, 0.0), (2.1, 1.0)])
def test_a_rank_is_late_only_by_a_clear_margin(more_ms: float, late: float) -> None:
    analysis = analyse(recording({0: plan(), 1: plan(30, forward=30 + more_ms)}))
    assert analysis.value("comm.late_share", 1) == late


def test_skew_among_many_ranks_is_measured_from_the_usual_one() -> None:
    plans = {rank: plan(30, input_wait=10 + 20 * rank) for rank in range(4)}  # 10, 30, 50, 70
    assert analyse(recording(plans)).value("comm.skew_s") == pytest.approx(0.03)


@pytest.mark.parametrize("every", [3, 7])
def test_steps_that_ddp_did_not_stamp_are_told_by_the_usual_backward(every: int) -> None:
    plans = {0: plan(40), 1: plan(40, forward=80)}
    full, sampled = (analyse(recording(plans, wire_ms=5, stamp_every=n)) for n in (1, every))
    assert sampled.budget.critical == pytest.approx(full.budget.critical)
    assert sampled.budget.per_rank[0] == pytest.approx(full.budget.per_rank[0])
    assert sampled.value("comm.wire_s") == pytest.approx(0.005)


def test_without_ddp_communication_is_missing_and_not_zero() -> None:
    analysis = analyse(recording({0: plan(), 1: plan(30, forward=80)}, ddp=False))
    for name in ("comm.wire_s", "comm.skew_s", "comm.late_share"):
        assert not analysis.has(name)
    assert "DistributedDataParallel" in analysis.missing["comm.wire_s"]
    assert all("comm_exposed" not in phases for phases in analysis.budget.per_rank.values())
    assert analysis.budget.critical == analysis.budget.per_rank[1], "the longest step"


def test_one_rank_has_nothing_to_communicate() -> None:
    analysis = analyse(recording({0: plan()}))
    assert not analysis.has("comm.wire_s") and "one rank" in analysis.missing["comm.wire_s"]
    assert analysis.excess == {} and analysis.ranks[0].late_share is None


def test_accumulated_micro_batches_are_one_step() -> None:
    accumulating = plan(30, micro_batches=4, samples=32, backward=200, flags=FLAG_SKIPPED_UPDATE)
    analysis = analyse(recording({0: accumulating}))
    assert analysis.value("step.samples") == 32.0
    assert analysis.throughput.samples_per_s == pytest.approx(32 / 0.25)


STREAM = {"input_wait": 1, "forward": 45, "backward": 49, "optimizer": 5}


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
def test_blocks_of_steps_with_events_tell_of_those_between(until: int, stream: bool) -> None:
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


@pytest.mark.parametrize("kernels_ms", [{"forward": 40}, {"forward": 60}])
def test_kernels_of_another_step_never_lengthen_the_step(kernels_ms: Mapping[str, float]) -> None:
    # an evaluation of 100 ms in each step, and on the stream a little less or more than the host's 100 ms besides
    stream = [{**STREAM, **kernels_ms, "gap": 100}] * 30
    analysis = analyse(recording({0: plan(30, evaluation=100)}, gpu_steps={0: gpu_steps(stream)}))
    budget = analysis.budget.per_rank[0]
    assert budget["gap.evaluation"] == pytest.approx(0.1)
    assert budget["unattributed"] == pytest.approx(0.0, abs=EXACT)
    assert sum(budget.values()) == pytest.approx(0.2, abs=EXACT)


def test_the_first_fetch_of_an_epoch_is_no_input_wait() -> None:
    steps = [step(**({"input_wait": 110, "flags": FLAG_EPOCH_START} if n % 10 == 4 else {})) for n in range(33)]
    analysis = analyse(recording({0: steps}))
    assert analysis.value("step.epoch_start_s", 0) == pytest.approx(0.1 * 3 / 30)
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(0.01)
    for row in (analysis.budget.critical, analysis.budget.per_rank[0]):
        assert row["input_wait"] == row["input_wait.epoch_start"] == pytest.approx(0.01), "the budget shows it apart"
        assert sum(row.values()) == pytest.approx(analysis.value("step.time_s"))


def test_where_every_step_begins_an_epoch_nothing_is_set_apart() -> None:
    analysis = analyse(recording({0: plan(30, flags=FLAG_EPOCH_START)}))
    assert analysis.value("step.epoch_start_s", 0) == 0.0
    assert analysis.value("step.input_wait_s", 0) == pytest.approx(0.01)


def test_a_loop_without_a_loader_says_so() -> None:
    analysis = analyse(recording({0: plan(30, flags=FLAG_NO_LOADER, input_wait=0)}))
    assert not analysis.has("step.input_wait_s") and not analysis.has("step.gap_s")
    assert "none of torch's loaders" in analysis.missing["step.input_wait_s"]
    assert analysis.value("step.compute_s", 0) == pytest.approx(0.06), "without what may be a fetch"
    assert [c.samples_per_s for c in analysis.capacities if c.stage == "compute"] == [None]
    assert "forward" not in analysis.budget.critical
    assert analysis.budget.critical["input_or_forward"] == pytest.approx(0.03)


def test_evaluation_counts_for_the_run_with_what_follows_the_last_step() -> None:
    steps = [step(evaluation=900 if n % 10 == 9 else 0) for n in range(30)]
    inside = analyse(recording({0: steps})).value("run.evaluation_share")
    assert inside == pytest.approx(2.7 / 5.7)
    after = analyse(recording({0: plan(30)}, tail_ms={"evaluation": 2000, "gap": 1000}))
    assert after.value("run.evaluation_share") == pytest.approx(2.0 / 6.0)
    assert after.value("step.evaluation_s", 0) == 0.0, "it belongs to no step"


def test_folded_rows_keep_their_weight() -> None:
    plans = {0: plan(200), 1: plan(200, forward=80)}
    full = recording(plans, wire_ms=5)
    fewer = replace(full, steps={rank: folded(rows, 10, 150) for rank, rows in full.steps.items()})
    assert max(rows["count"].max() for rows in fewer.steps.values()) > 1
    assert analyse(fewer).budget.critical == pytest.approx(analyse(full).budget.critical)
    assert analyse(fewer).value("step.time_s") == pytest.approx(analyse(full).value("step.time_s"))


def test_ranks_that_share_no_unfolded_step_are_accounted_apart() -> None:
    full = recording({0: plan(60), 1: plan(60, forward=80)}, wire_ms=5)
    torn = {rank: rows[rows["step"] % 2 == rank] for rank, rows in full.steps.items()}  # records were lost in between
    analysis = analyse(replace(full, steps=torn))
    assert np.isfinite(list(analysis.budget.critical.values())).all()
    assert sum(analysis.budget.critical.values()) == pytest.approx(analysis.value("step.time_s"), rel=0.01)


def evaluating(steps: int, **more: Any) -> Analysis:
    """Two ranks that evaluate 500 ms long after every fifth step."""
    own = [step(evaluation=500 if n % 5 == 4 else 0, **more) for n in range(steps)]
    return analyse(recording({0: own, 1: own}, wire_ms=5))


@pytest.mark.parametrize("steps", [14, 15, 28, 30])
def test_a_rare_long_phase_at_the_edge_keeps_its_weight(steps: int) -> None:
    analysis = evaluating(steps)
    critical = analysis.budget.critical
    assert sum(critical.values()) == pytest.approx(analysis.value("step.time_s"), rel=0.01)
    assert critical["gap.evaluation"] == pytest.approx(analysis.value("step.evaluation_s", 0), rel=0.02)


def accumulating(batches: int = 4, *, counted: int = 4, wire_ms: float = 10.0) -> Recording:
    """Two ranks whose steps are of several batches; DDP counts so many iterations in each, and stamps one of them."""
    own = plan(40, backward=80 + (counted - 1) * wire_ms, micro_batches=batches, samples=8 * batches)
    made = recording({0: own, 1: own}, wire_ms=wire_ms, facts=sharing(2))
    for rows in made.comm.values():
        rows["iteration"] *= counted
    return made


def sharing(ranks: int) -> dict[int, dict[str, Any]]:
    """Facts of two ranks whose model of 100 MB is shared by so many."""
    return {100 + rank: {"ddp": [{"world_size": ranks, "total_parameter_size_bytes": 100_000_000}]} for rank in (0, 1)}


def test_gradients_that_are_exchanged_after_each_micro_batch_are_waited_for_each_time() -> None:
    analysis = analyse(accumulating())
    assert analysis.value("comm.exchanges") == 4
    assert analysis.value("comm.wire_s") == pytest.approx(0.040)
    assert analysis.budget.critical["backward"] == pytest.approx(0.080)
    assert analysis.value("comm.megabytes") == pytest.approx(400.0)
    assert sum(analysis.budget.critical.values()) == pytest.approx(analysis.value("step.time_s"))


@pytest.mark.parametrize(
    ("batches", "counted"),
    [pytest.param(4, 1, id="under no_sync"), pytest.param(1, 2, id="a model that is asked twice for each batch")],
)
def test_one_exchange_is_counted_once(batches: int, counted: int) -> None:
    analysis = analyse(accumulating(batches, counted=counted))
    assert analysis.value("comm.exchanges") == 1
    assert analysis.value("comm.wire_s") == pytest.approx(0.010)


def test_ranks_out_of_sight_may_be_what_the_others_wait_for() -> None:
    own = plan(40)
    seen, partly = (analyse(recording({0: own, 1: own}, wire_ms=30, facts=sharing(n))) for n in (2, 4))
    assert seen.value("comm.wire_s") == pytest.approx(0.030)
    assert not any(partly.has(name) for name in ("comm.wire_s", "comm.span_s", "comm.bus_gb_per_s"))
    assert "2 of 4 ranks" in partly.missing["comm.wire_s"]
    assert partly.value("comm.skew_s") == pytest.approx(0.0, abs=EXACT), "they do not wait for each other"
    (told,) = [c for c in partly.capacities if c.stage == "communication"]
    assert told.samples_per_s is None and "2 of 4 ranks" in told.basis
    alone = analyse(recording({0: own}, facts=sharing(4)))
    assert "1 of 4 ranks" in alone.missing["comm.wire_s"]


@pytest.mark.parametrize("every", [4, 7])
def test_steps_of_any_size_that_ddp_did_not_stamp_are_told_by_their_forward(every: int) -> None:
    sizes = np.random.default_rng(1).uniform(0.4, 1.6, 200)
    own = [step(forward=30 * size, backward=60 * size) for size in sizes]
    analysis = analyse(recording({0: own, 1: own}, wire_ms=5, stamp_every=every))
    assert analysis.budget.per_rank[0]["comm_exposed"] == pytest.approx(0.005, rel=0.01)
    assert analysis.budget.critical["backward"] == pytest.approx(0.060 * sizes[3:].mean(), rel=0.01)


def test_where_the_forward_tells_nothing_the_usual_backward_does() -> None:
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


def test_exchanges_that_the_host_only_queues_are_timed_by_the_device() -> None:
    """NCCL: the host's stamps of the ends of compute and exchange are one moment, and the stream is held until the slowest has come."""
    slow = {"forward": 40, "backward": 90, "optimizer": 10}
    own = {0: {**slow, "forward": 30}, 1: slow}
    made = recording({0: plan(40, input_wait=0, **own[0]), 1: plan(40, input_wait=0, **own[1])}, wire_ms=6)
    for stamps in made.comm.values():
        stamps["comm_end_ns"] = stamps["compute_end_ns"] + 100_000
        stamps["overlap_ns"] = 20_000_000
        stamps["comm_ns"] += 20_000_000
    stream = {rank: gpu_steps([{**phases, "backward": 96 + 10 * (rank == 0)}] * 40) for rank, phases in own.items()}
    analysis = analyse(replace(made, gpu_steps=stream))
    assert analysis.value("comm.wire_s") == pytest.approx(0.006)
    assert analysis.value("comm.skew_s") == pytest.approx(0.010)
    assert analysis.by_rank("comm.late_share")[1] == 1.0


def test_stamps_of_one_rank_alone_tell_no_wire_from_waiting() -> None:
    made = recording({0: plan(), 1: plan(30, forward=80)}, wire_ms=5)
    analysis = analyse(replace(made, comm={0: made.comm[0]}))
    assert not analysis.has("comm.wire_s") and "not timed in the same steps" in analysis.missing["comm.wire_s"]
    assert analysis.by_rank("comm.exposed_s") == {0: pytest.approx(0.055)}
