"""Marks are charged what they take in this process. Those of very short steps are thinned when that is too much."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.layout import PHASE_BITS
from rn50_advisor.probes.rank.ring import PHASE
from rn50_advisor.probes.rank.steps.mark_costs import (
    BLOCK_STEPS,
    EVERY_MAX,
    FIRST_STEPS,
    WINDOW_NS,
    MarkCost,
    ThinnedMarks,
    TimedWords,
    mark_ns,
)
from rn50_advisor.probes.rank.steps.step_phases import GAP
from step_loops import MS

STEP_NS = 250_000


def trained(thinned: ThinnedMarks, steps: int, *, marked_ns: int, counted_ns: int) -> float:
    """Runs these steps. Returns the share of the time that marks took in the last third."""
    step, spent = 0, []
    while step < steps:
        alike = min(thinned.steps_alike(step), 64)
        cost_ns = alike * (counted_ns if thinned.to_marked(step) else marked_ns)
        step += alike
        spent.append(cost_ns / (alike * STEP_NS))
        thinned.add(cost_ns, alike * STEP_NS, step)
    last = spent[-len(spent) // 3 :]
    return sum(last) / len(last)


@pytest.mark.parametrize(
    ("marked_us", "every"),
    [
        pytest.param(4.9, 1, id="just within the budget"),
        pytest.param(6, 2, id="half of the steps must go"),
        pytest.param(12, 4, id="all but a quarter"),
        pytest.param(400, EVERY_MAX, id="never all of them"),
    ],
)
def test_so_many_blocks_are_marked_that_the_cost_stays_within_the_budget(marked_us: float, every: int) -> None:
    thinned = ThinnedMarks(0.02)
    share = trained(thinned, 60_000, marked_ns=round(1000 * marked_us), counted_ns=1_000)
    assert thinned.every == every
    assert (share <= 0.02) == (every < EVERY_MAX)


def test_marks_come_back_when_they_have_become_cheap() -> None:
    thinned = ThinnedMarks(0.02)
    thinned.every = 8
    trained(thinned, 60_000, marked_ns=1_000, counted_ns=500)
    assert thinned.every == 1


def test_the_first_steps_are_all_marked_whatever_they_cost() -> None:
    thinned = ThinnedMarks(0.02)
    thinned.add(WINDOW_NS // 30, WINDOW_NS, FIRST_STEPS - 1)
    assert thinned.every == 1
    thinned.add(1, 1, FIRST_STEPS)
    assert thinned.every == 2


def test_what_is_marked_with_fewer_blocks_is_marked_with_more_of_them() -> None:
    few, many = ThinnedMarks(0.02), ThinnedMarks(0.02)
    few.every, many.every = 8, 2
    marked = [step for step in range(4096) if few.to_marked(step) == 0]
    assert len(marked) == 4096 // 8
    assert all(many.to_marked(step) == 0 for step in marked)


def test_steps_are_alike_until_a_block_of_the_other_kind_begins() -> None:
    thinned = ThinnedMarks(0.02)
    assert thinned.steps_alike(7) > 10**6
    thinned.every = 4
    for step in range(3 * 4 * BLOCK_STEPS):
        alike = thinned.steps_alike(step)
        kinds = [thinned.to_marked(step + n) > 0 for n in range(alike + 1)]
        assert len(set(kinds[:-1])) == 1 and kinds[-1] != kinds[0]
        assert thinned.to_marked(step + thinned.to_marked(step)) == 0


def test_a_mark_is_charged_what_it_was_measured_to_take() -> None:
    assert [round(mark_ns(ms * MS) / 1e3, 1) for ms in (1, 5, 50, 5000)] == [1.8, 4.0, 12.7, 12.7]


def test_a_marks_cost_is_what_marks_took_in_this_process_without_the_slowest() -> None:
    cost, words = MarkCost(), TimedWords([0] * 32)
    assert cost.ns(MS) == mark_ns(MS)
    words[PHASE] = 5 << PHASE_BITS | GAP
    words[PHASE + 1] = 7
    assert words._words[PHASE : PHASE + 2] == [5 << PHASE_BITS | GAP, 7] and len(words.times) == 1
    for _ in range(40):
        cost.measured([300] * 15 + [4 * MS] * 2, MS)
    assert cost.ns(MS) == pytest.approx(750, rel=0.01)
