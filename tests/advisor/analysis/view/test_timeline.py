"""The run along its time: bounded slices for plots, and the stretches that have a name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recordings import SECOND, epoch_starts, folded, plan, recording, running, spans, stall
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Segment, TimelinePoint
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules


def drawn(made: Recording) -> tuple[TimelinePoint, ...]:
    return analyse(made).timeline


def test_slices_cover_the_run_from_its_first_step() -> None:
    points = drawn(recording({0: plan(200)}))
    assert points[0].t_s == pytest.approx(2.0), "since the job's start"
    gaps = np.diff([point.t_s for point in points])
    assert gaps == pytest.approx(gaps[0])
    assert points[-1].t_s + gaps[0] == pytest.approx(2.0 + 20.0)
    assert all(p.step_s == pytest.approx(0.1) and p.input_wait_share == pytest.approx(0.1) for p in points)
    made = sum(p.samples_per_s or 0.0 for p in points) * gaps[0]
    assert made == pytest.approx(200 * 8), "no sample is lost or counted twice"


@pytest.mark.parametrize("steps", [1, 2, 30, 3000])
def test_a_timeline_has_at_most_a_few_hundred_slices(steps: int) -> None:
    assert 1 <= len(drawn(recording({0: plan(steps)}))) <= 240


@pytest.mark.parametrize("step_ms", [70, 90, 170])
def test_steps_of_equal_length_draw_a_level_line_however_they_fall_into_slices(step_ms: int) -> None:
    points = drawn(recording({0: plan(2000, input_wait=0, forward=step_ms, backward=0, optimizer=0)}))
    rates = [point.samples_per_s for point in points]
    assert rates == pytest.approx([8 / (0.001 * step_ms)] * len(rates), rel=0.01)


def test_a_slow_step_draws_a_dip_as_long_as_it_is() -> None:
    points = drawn(recording({0: [*plan(100), *plan(1, forward=5000), *plan(100)]}))
    slow = [p for p in points if p.samples_per_s is not None and p.samples_per_s < 10]
    assert sum(1 for _ in slow) * (points[1].t_s - points[0].t_s) == pytest.approx(5.0, abs=0.6)
    assert max(p.samples_per_s or 0.0 for p in points) == pytest.approx(80.0, rel=0.05), "no burst where it ends"


def ahead(millis: int) -> list[dict[str, float]]:
    return plan(1, input_wait=0, forward=millis, backward=0, optimizer=0)


# The host queues three steps ahead, computes in the GPU's pace, and waits for all of them at the next `.item()`.
QUEUED = [*ahead(30), *ahead(70), *ahead(30), *(16 * ahead(100)), *ahead(270)]


def test_steps_that_the_host_queues_ahead_of_its_gpu_draw_no_peak() -> None:
    of_cpu, of_gpu = (
        [p.samples_per_s or 0.0 for p in drawn(recording({0: QUEUED * 10}, facts={100: facts}))]
        for facts in ({}, {"cuda": {"devices": 1}})
    )
    assert max(of_cpu) > 95.0, "a CPU has no queue: such steps were fast"
    assert max(of_gpu) == pytest.approx(80.0, rel=0.01)
    assert sum(of_gpu) == pytest.approx(sum(of_cpu)), "no sample is lost"


def test_throughput_is_that_of_all_ranks() -> None:
    one, two = (drawn(recording({rank: plan(100) for rank in range(n)})) for n in (1, 2))
    assert two[3].samples_per_s == pytest.approx(2 * (one[3].samples_per_s or 0.0))
    assert two[3].step_s == pytest.approx(one[3].step_s or 0.0)


def test_a_stretch_without_steps_is_unknown_step_time_and_no_throughput() -> None:
    made = running(recording({0: plan(50)}))
    waiting = replace(made, meta=replace(made.meta, last_ns=made.meta.last_ns + 20 * SECOND))
    last = drawn(waiting)[-1]
    assert last.step_s is None and last.input_wait_share is None and last.samples_per_s == 0.0


def test_unknown_batch_sizes_draw_no_throughput() -> None:
    assert {p.samples_per_s for p in drawn(recording({0: plan(50, samples=0)}))} == {None}


def test_folded_rows_draw_the_same_sum() -> None:
    full = recording({0: plan(400)})
    fewer = replace(full, steps={0: folded(full.steps[0], 10, 350)})
    sums = [sum(p.samples_per_s or 0.0 for p in drawn(r)) / len(drawn(r)) for r in (full, fewer)]
    assert sums[1] == pytest.approx(sums[0])


def named(made: Recording, kind: str) -> list[Segment]:
    return [segment for segment in analyse(made).segments if segment.kind == kind]


def test_the_warm_up_is_the_first_segment() -> None:
    (warm_up,) = named(recording({0: plan(30)}), "warm-up")
    assert (warm_up.start_s, warm_up.end_s) == pytest.approx((2.0, 2.3))
    assert (warm_up.first_step, warm_up.last_step) == (0, 2)


def test_epochs_reach_from_one_first_fetch_to_the_next() -> None:
    epochs = named(recording({0: epoch_starts(plan(30), 10)}), "epoch")
    assert [(e.first_step, e.last_step, e.label) for e in epochs] == [
        (0, 9, "epoch 0"),
        (10, 19, "epoch 1"),
        (20, 29, "epoch 2"),
    ]
    assert epochs[1].start_s == pytest.approx(epochs[0].end_s)


def test_epochs_that_were_not_counted_from_the_first_have_no_number() -> None:
    made = recording({0: epoch_starts(plan(400), 5)})
    rows = made.steps[0]
    later, folds = replace(made, steps={0: rows[200:]}), replace(made, steps={0: folded(rows, 20, 350)})
    for known in (later, folds):
        assert {e.label for e in named(known, "epoch")} == {"epoch"}
    again = rows.copy()
    again["t_start_ns"] += 60 * SECOND
    again["t_end_ns"] += 60 * SECOND
    assert {e.label for e in named(replace(made, steps={0: np.concatenate([rows, again])}), "epoch")} == {"epoch"}


def test_a_single_epoch_is_no_segment() -> None:
    assert named(recording({0: epoch_starts(plan(30), 100)}), "epoch") == []


def test_evaluations_checkpoints_and_stalls_have_their_place() -> None:
    marks = spans(
        [("evaluation", 9, 1.0, 1.5), ("checkpoint", 9, 1.5, 1.6), ("gc", 9, 1.6, 1.7), ("fsync", 9, 1.6, 1.7)]
    )
    made = recording({0: plan(), 1: plan()}, spans={0: marks, 1: marks}, events=(stall(40.0, {"rank": 0}),))
    found = [s for s in analyse(made).segments if s.kind != "warm-up"]
    assert [s.kind for s in found] == ["evaluation", "checkpoint", "stall"], "of the first rank, each once"
    assert [t for s in found for t in (s.start_s, s.end_s)] == pytest.approx([3.0, 3.5, 3.5, 3.6, 12.0, 52.0])


@pytest.mark.parametrize(
    ("lasting_s", "shown"),
    [
        ({1: 0.5}, [("evaluation on rank 1", 9), ("evaluation on rank 1", 19)]),
        ({0: 0.05, 1: 0.5}, [("evaluation on rank 1", 9), ("evaluation on rank 1", 19)]),
        ({0: 0.4, 1: 0.5}, [("", 9), ("", 19)]),
        ({0: 0.5}, [("", 9), ("", 19)]),
    ],
    ids=["it alone", "the first hardly", "all of them", "the first alone"],
)
def test_evaluations_are_those_of_the_rank_that_spends_its_time_in_them(
    lasting_s: dict[int, float], shown: list[tuple[str, int]]
) -> None:
    marks = {
        rank: spans([("evaluation", n, 0.1 * n, 0.1 * n + lasts) for n in (9, 19)]) for rank, lasts in lasting_s.items()
    }
    found = named(recording({0: plan(), 1: plan()}, spans=marks), "evaluation")
    assert [(s.label, s.first_step) for s in found] == shown


@pytest.mark.parametrize("alone", [0, 1])
def test_a_rank_that_evaluates_for_all_is_shown_whichever_it_is(alone: int) -> None:
    evaluating = [part for _ in range(6) for part in (*plan(9), *plan(1, evaluation=500))]
    marks = spans([("evaluation", 10 * n + 9, 1.5 * n + 1, 1.5 * n + 1.5) for n in range(6)])
    made = recording({alone: evaluating, 1 - alone: plan(60)}, spans={alone: marks})
    rule = next(rule for rule in all_rules() if rule.id == "LOP003")
    outcome = run_rule(rule, analyse(made), Config())
    assert isinstance(outcome, Finding) and outcome.scope.ranks == (alone,)
    assert {e.metric: e.value for e in outcome.evidence}["evaluations"] == 6


def test_segments_are_bounded_and_in_order_of_time() -> None:
    many = [(kind, n, 0.1 * n, 0.1 * n + 0.05) for n in range(1000) for kind in ("evaluation", "checkpoint")]
    made = recording({0: epoch_starts(plan(3000), 2)}, spans={0: spans(many)})
    segments = analyse(made).segments
    assert len(segments) <= 601
    assert [s.start_s for s in segments] == sorted(s.start_s for s in segments)
    kept = [s for s in segments if s.kind == "evaluation"]
    assert len(kept) == 200 and kept[-1].first_step == 999, "the latest"


def test_a_run_without_a_step_has_neither_slices_nor_segments() -> None:
    analysis = analyse(recording({}))
    assert analysis.timeline == () and analysis.segments == ()


def test_each_slice_names_the_rank_that_was_waited_for() -> None:
    """First rank 1 is late, then nobody, then rank 0."""
    even = plan(40)
    plans = {0: [*even, *even, *plan(40, forward=70)], 1: [*plan(40, input_wait=60), *even, *even]}
    points = drawn(recording(plans, wire_ms=5))
    late = [(point.late_rank, point.late_s) for point in points if point.step_s is not None]
    ranks = [rank for rank, _ in late]
    found = ranks[ranks.index(1) :]  # after the warm-up
    assert [found.count(rank) > len(found) // 5 for rank in (1, None, 0)] == [True, True, True]
    assert found == sorted(found, key=(1, None, 0).index), "one after the other"
    by = {rank: seconds for rank, seconds in late if rank is not None}
    assert by[0] == pytest.approx(0.04, abs=0.005)
    assert max(seconds for rank, seconds in late if rank == 1) == pytest.approx(0.05, abs=0.005)


def test_a_rank_alone_is_never_late() -> None:
    assert {point.late_rank for point in drawn(recording({0: plan(50)}))} == {None}
