"""What is said of a long run, of which only the latest steps are kept as they came, is what all of its steps say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from recordings import folded, gpu_steps, plan, recording, step, table
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, all_steps
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.statistics import weighted_quantile
from rn50_advisor.advisor.store.step_folding import COLUMNS
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS, FLAG_NO_LOADER

HOST = {"input_wait": 60, "forward": 5, "backward": 5, "optimizer": 30}  # runs ahead of the stream and waits there
STREAM = {"input_wait": 1, "forward": 45, "backward": 49, "optimizer": 5}
SLICE = 200  # rows that retention folds at once
KEPT = 0.03  # of them: outliers that it leaves alone


def aged(made: Recording, whole: int) -> Recording:
    """All but the latest `whole` steps as retention leaves them: windows of a second, and outliers between them."""
    steps = {}
    for rank, rows in made.steps.items():
        size = rows.size - whole
        older = [rows[n : min(n + SLICE, size)] for n in range(0, size, SLICE)]
        folds = [folded(part, 0, part.size, outlier_share=KEPT) for part in older]
        steps[rank] = np.concatenate([*folds, rows[list(COLUMNS)][size:]])
    return replace(made, steps=steps)


def own(made: Recording, rank: int = 0) -> RankSteps:
    return all_steps(made)[rank]


def test_single_steps_among_folded_ones_are_no_sample() -> None:
    made = aged(recording({0: [step(gap=300 if n % 50 == 7 else 0) for n in range(500)]}), 100)
    rows = own(made)
    assert (rows.count[~rows.sample] == 1).sum() >= 8, "outliers stand alone"
    assert rows.sample.sum() == 100 and rows.sample[-100:].all()
    assert own(recording({0: plan(20)})).sample.all()


def test_steps_that_nodes_send_each_other_whole_are_a_sample_wherever_they_stand() -> None:
    rows = recording({0: plan(400)}).steps[0]
    parts = [
        part for first in range(0, 400, 100) for part in (rows[first : first + 12], rows[first + 12 : first + 100])
    ]
    sent = np.concatenate([part[list(COLUMNS)] if part.size == 12 else folded(part, 0, part.size) for part in parts])
    assert own(recording({0: plan(400)}, steps={0: sent})).sample.sum() == 48


def test_where_no_single_steps_stand_together_any_will_do() -> None:
    rows = recording({0: plan(60)}).steps[0]
    assert own(recording({0: plan(60)}, steps={0: folded(rows, 3, 57)})).sample.sum() == 6


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


def test_what_made_a_step_far_longer_is_told_by_the_host_where_no_event_was_kept() -> None:
    steps = [step(**{**HOST, "input_wait": 2060 if n == 20 else 60}) for n in range(100)]
    stream = gpu_steps([{**STREAM, "step": n} for n in range(100) if n != 20])
    budget = analyse(recording({0: steps}, gpu_steps={0: stream})).budget.per_rank[0]
    assert budget["input_wait"] == pytest.approx((96 * 0.001 + 2.06) / 97, rel=0.01)


def pausing(rank: int | None = None, phase: str = "forward") -> Recording:
    """Every 50th step takes half a second more, on this rank or on both of them."""
    long, usual = [step(**{phase: 530} if n % 50 == 9 else {}) for n in range(1000)], plan(1000)
    return recording({n: long if rank in (None, n) else usual for n in (0, 1)}, wire_ms=5)


@pytest.mark.parametrize("name", ["comm.skew_s", "comm.wire_s"])
def test_rare_long_steps_weigh_as_much_in_blame_as_they_come(name: str) -> None:
    whole, old = (analyse(made).value(name) for made in (pausing(0), aged(pausing(0), 400)))
    assert old == pytest.approx(whole, rel=0.03)


@pytest.mark.parametrize("whole", [1000, 400, 40])
def test_the_critical_path_of_an_aged_run_is_still_the_whole_step(whole: int) -> None:
    made = pausing(phase="evaluation")
    analysis = analyse(made if whole == 1000 else aged(made, whole))
    critical, step_s = analysis.budget.critical, analysis.value("step.time_s")
    assert sum(critical.values()) == pytest.approx(step_s, rel=0.01)
    assert critical["gap.evaluation"] == pytest.approx(analysis.value("step.evaluation_s", 0), rel=0.01)


def stalling(steps: int, *, every: int, ms: float = 200, scale: float = 1.0) -> list[dict[str, float]]:
    """Three steps in a row, of so many, are longer by some milliseconds."""
    made = [step(forward=30 + ms if n % every in (5, 6, 7) else 30) for n in range(steps)]
    return [{name: v * scale if name not in ("samples", "micro_batches") else v for name, v in s.items()} for s in made]


def test_the_usual_and_the_longest_steps_are_those_of_all_steps() -> None:
    time = analyse(aged(recording({0: stalling(1000, every=100, scale=0.02)}), 20)).step_time
    assert time.median_s == pytest.approx(0.002, rel=0.05) and time.p95_s == pytest.approx(0.002, rel=0.05)


def test_a_weighted_quantile_is_that_of_the_list_in_full() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([2.0, 50.0, 48.0])
    assert [weighted_quantile(values, weights, share) for share in (0.25, 0.5, 0.6, 0.97, 0.99, 1.0)] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert weighted_quantile(np.array([1.0, 2.0]), np.ones(2), 0.5) == 1.5, "as numpy's where all weigh alike"
    with pytest.raises(ValueError, match="nothing"):
        weighted_quantile(np.array([]), np.array([]), 0.5)


def test_outliers_that_were_kept_are_no_change_of_speed() -> None:
    quick = [*stalling(4000, every=4000, scale=0.05), *stalling(4000, every=100, scale=0.05)]
    assert analyse(recording({0: quick})).changes == ()
    assert analyse(aged(recording({0: quick}), 100)).changes == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_stalls_is_found_beside_its_folded_past(rank: int) -> None:
    long = [step(forward=180 if n % 20 == 5 else 30) for n in range(3600)]
    pulse = analyse(aged(recording({rank: long, 1 - rank: plan(3600)}), 240)).pulse
    assert pulse is not None and (pulse.period_steps, pulse.rank, pulse.phase) == (20, rank, "forward")


def test_a_loop_is_fed_if_most_single_steps_were() -> None:
    """A row of several steps has the marks of each of them."""
    steps = [step(flags=FLAG_NO_LOADER if n % 4 == 0 else 0) for n in range(400)]
    assert own(recording({0: steps})).fed
    assert own(aged(recording({0: steps}), 20)).fed


def test_compute_is_what_single_steps_took() -> None:
    made = recording({0: stalling(1000, every=40, ms=600)})
    whole, old = (next(c for c in analyse(m).capacities if c.stage == "compute") for m in (made, aged(made, 240)))
    assert old.samples_per_s == pytest.approx(whole.samples_per_s, rel=0.02)


def test_collectives_of_steps_whose_record_is_gone_are_those_of_the_others() -> None:
    def calls(made: Recording, recorded: Sequence[int]) -> Analysis:
        rows = [{"step": n, "calls": 4, "optimizer_ns": 20_000_000, "group_size": 2} for n in recorded]
        return analyse(replace(made, collectives=dict.fromkeys((0, 1), table((*COLLECTIVES_FIELDS, "flags"), rows))))

    own = plan(1000, optimizer=30)
    made = recording({0: own, 1: own}, ddp=False)
    whole, old = calls(made, range(1000)), calls(aged(made, 200), range(860, 1000))
    for name in ("comm.wire_s", "collectives.by_hand_s"):
        assert old.value(name) == pytest.approx(whole.value(name)) == pytest.approx(0.020)
    assert old.value("collectives.calls", 0) == pytest.approx(4.0)
    assert old.budget.per_rank[0]["optimizer"] == pytest.approx(0.010)
