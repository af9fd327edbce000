"""The owner of a step's time: phases, waiting for others, communication, and the critical path through the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import Plan, folded, gpu_steps, plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START

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
        assert phases["unattributed"] == 0.0, "rounding is no time"


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


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("in_a_row", "error_s"), [(100, 0.025), (1, 0.0)])
def test_the_error_of_a_rank_s_excess_comes_from_the_scatter_of_its_steps(
    in_a_row: int, error_s: float, ranks: int
) -> None:
    """100 ms more in half of its steps: eight of sixteen stretches, so 2 x 51.6 ms / sqrt(16); or half of each stretch."""
    half = [step()] * in_a_row, [step(forward=130)] * in_a_row
    plans = {rank: [step()] * 800 for rank in range(ranks)} | {1: [*half[0], *half[1]] * (400 // in_a_row)}
    error = analyse(recording(plans, wire_ms=5)).by_rank("comm.excess_error_s")
    assert error[1] == pytest.approx(error_s, abs=0.002)
    assert error[0] == (error[1] if ranks == 2 else 0.0)


@pytest.mark.parametrize(("wire_ms", "error"), [((5, 5), 0.0), ((5, 15), 0.258)])
def test_the_error_of_the_exposed_wire_is_a_share_of_it(wire_ms: tuple[float, float], error: float) -> None:
    """Eight of sixteen stretches with 15 ms: 2 x 5.16 ms / sqrt(16) of 10 ms."""
    run = recording({rank: [step()] * 800 for rank in range(2)}, wire_ms=5)
    for table in run.comm.values():
        table["comm_ns"][table["step"] >= 400] += int(1e6 * (wire_ms[1] - wire_ms[0]))
    assert analyse(run).value("comm.wire_error") == pytest.approx(error, abs=0.02)


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


@pytest.mark.parametrize(("more_ms", "late"), [(1.9, 0.0), (2.1, 1.0)])
def test_a_rank_is_late_only_by_a_clear_margin(more_ms: float, late: float) -> None:
    analysis = analyse(recording({0: plan(), 1: plan(30, forward=30 + more_ms)}))
    assert analysis.value("comm.late_share", 1) == late


def test_skew_among_many_ranks_is_measured_from_the_usual_one() -> None:
    plans = {rank: plan(30, input_wait=10 + 20 * rank) for rank in range(4)}  # 10, 30, 50, 70
    assert analyse(recording(plans)).value("comm.skew_s") == pytest.approx(0.03)


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
