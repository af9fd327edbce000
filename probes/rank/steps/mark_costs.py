"""What marks cost in this process, and which steps of a loop of very short ones are marked in full: the others are only counted.

Blocks of steps are chosen by their number alone, so ranks that thin differently still share marked steps.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from ..layout import PHASE_BITS
from ..ring import PHASE

BUDGET_SHARE = 0.02  # until the user's is known; equal to `RunOptions.overhead_budget`
# Cost of one mark in steps of 1 ms; it grows with the square root of the step's length up to 50 ms: `tests/bench/marks.py` measured
# some 1.8, 4.5 and 10 us at 1, 5 and 50 ms. Timing each mark would double the cost.
MARK_NS = 1_800
_MARK_GROWS_UNTIL_NS = 50_000_000
# A mark takes this many times as long, with the call of its wrapper and all before its clock.
_WHOLE_MARK = 2.5
# Consecutive marked steps, in which outliers have their true frequency.
BLOCK_STEPS = 64
# At most one block in so many is left. A counted step costs some 2 us for entering the patched functions, whatever is noted.
EVERY_MAX = 32
FIRST_STEPS = 1024  # all these are marked, to cover short runs
WINDOW_NS = 1_000_000_000  # of the steps whose cost is compared with the budget
_UNLIMITED = 1 << 30


class ThinnedMarks:
    """The choice of one process. `budget`: the share of the time that marks may take. `every`: one block in so many is marked."""

    __slots__ = ("_cost_ns", "_period", "_steps_ns", "budget", "every")

    def __init__(self, budget: float = BUDGET_SHARE) -> None:
        self.budget = budget
        self.every = 1
        self._cost_ns = self._steps_ns = self._period = 0

    def add(self, cost_ns: int, steps_ns: int, step: int) -> None:
        """Adds what the marks of some steps cost, of the time that these steps took; `step`: the next one. At times changes `every`."""
        self._cost_ns += cost_ns
        self._steps_ns += steps_ns
        period = step // (BLOCK_STEPS * self.every)
        if self._steps_ns < WINDOW_NS or period == self._period or step < FIRST_STEPS:
            return  # in whole periods, which have counted and marked steps in their true proportion
        share = self._cost_ns / self._steps_ns
        if share > self.budget:
            while share > self.budget and self.every < EVERY_MAX:
                self.every, share = 2 * self.every, share / 2
        elif share < 0.4 * self.budget:  # twice as many blocks at most double it
            self.every = max(self.every // 2, 1)
        self._cost_ns = self._steps_ns = 0
        self._period = step // (BLOCK_STEPS * self.every)

    def to_marked(self, step: int) -> int:
        """Number of steps until the next marked one; 0: this one."""
        if self.every == 1:
            return 0
        period = BLOCK_STEPS * self.every
        place = step % period
        return 0 if place < BLOCK_STEPS else period - place

    def steps_alike(self, step: int) -> int:
        """Number of steps from this one on that are all marked or all counted."""
        if self.every == 1:
            return _UNLIMITED
        return self.to_marked(step) or BLOCK_STEPS - step % BLOCK_STEPS


class TimedWords:
    """Stands in for the words of the ring's header until a flush: times each mark, whose last act is to store its phase and time."""

    __slots__ = ("_words", "times")

    def __init__(self, words: Any) -> None:
        self._words = words
        self.times: list[int] = []  # ns of each mark

    def __setitem__(self, place: int, value: int) -> None:
        now = perf_counter_ns()
        self._words[place] = value
        if place == PHASE:
            self.times.append(now - (value >> PHASE_BITS))


class MarkCost:
    """What a mark takes in this process. Until some were timed, what it took on another machine."""

    __slots__ = ("_ns",)

    def __init__(self) -> None:
        self._ns = 0.0

    def measured(self, times: list[int], step_ns: int) -> None:
        """Adds the times of some marks. The longest ones are those in which the thread was preempted."""
        kept = sorted(times)[: len(times) - len(times) // 8]
        if kept:
            known = self._ns or mark_ns(step_ns)
            self._ns = known + (_WHOLE_MARK * sum(kept) / len(kept) - known) / 4

    def ns(self, step_ns: int) -> int:
        """Nanoseconds to note one mark in steps of this length."""
        return int(self._ns) or mark_ns(step_ns)


def mark_ns(step_ns: int) -> int:
    """Nanoseconds to note one mark in steps of this length."""
    return int(MARK_NS * (min(step_ns, _MARK_GROWS_UNTIL_NS) / 1e6) ** 0.5)
