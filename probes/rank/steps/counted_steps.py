"""Counted steps: short ones, of which only the start and the end of the update were noted. The time between is split as in marked steps.

The sums of all counted steps of a stretch become one row, as if single steps had been folded. Where the stretch does not end at the end of
a step, or the loop changes in it, marks are placed where they usually are, and what comes next is marked as ever.
"""

from __future__ import annotations

from operator import le
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MARKS = 5  # of a step, after its start: batch, backward pass and its end, update and its end
BATCH, BACKWARD, BACKWARD_END, UPDATE, UPDATE_END = range(MARKS)
_NEW_SHARE = 4  # the latest marked steps count a quarter


class UsualStep:
    """The mean times of the marks of marked steps, in ns after the step's start. Unknown until some steps were marked."""

    __slots__ = ("offsets",)

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def learn(self, starts: Sequence[int], noted: Sequence[Sequence[int]]) -> None:
        """`starts` of marked steps, and the times of their marks, by kind. A loop without loader has no times of batches."""
        steps = min(len(starts), *(len(noted[mark]) for mark in range(BACKWARD, MARKS)))
        if not steps or len(noted[BATCH]) not in (0, *range(steps, steps + 2)):
            return
        began = sum(starts[:steps])
        kinds = [noted[mark][:steps] or starts[:steps] for mark in range(MARKS)]
        found = [(sum(times) - began) // steps for times in kinds]
        if found != sorted(found) or found[BATCH] < 0:
            return
        known = self.offsets or found
        self.offsets = [known[mark] + (found[mark] - known[mark]) // _NEW_SHARE for mark in range(MARKS)]

    def split(self, total_ns: int) -> list[int]:
        """Splits the time from starts of steps to the ends of their updates by the phases in between; the parts sum to it."""
        ends = [0, *(offset * total_ns // max(1, self.offsets[-1]) for offset in self.offsets[:-1]), total_ns]
        return [ends[n + 1] - ends[n] for n in range(MARKS)]

    def place(self, began: int, updated: int, until: int) -> list[int]:
        """The likely times of the marks of a step, in order and before `until`; `updated`: the end of its update, 0 if unknown."""
        offsets, length = self.offsets, self.offsets[-1]
        if updated:
            offsets = [offset * (updated - began) // max(1, length) for offset in offsets]
        times, last = [], began
        for offset in offsets:
            last = min(max(last + 1, began + offset), updated or until)
            times.append(last)
        return times


def are_plain(starts: Sequence[int], updates: Sequence[int], bounds: Sequence[int]) -> bool:
    """True if each step, from one of `starts` to one of `bounds`, has one update."""
    steps = len(bounds)
    return 0 < steps <= len(updates) <= steps + 1 and all(map(le, starts, updates)) and all(map(le, updates, bounds))


def placed(
    usual: UsualStep, starts: Sequence[int], updates: Sequence[int], bounds: Sequence[int], *, seen: int, now: int
) -> list[list[int]]:
    """The likely times of all marks of these steps by kind. `seen`: number of marks in the last step, which goes on, if not updated."""
    noted: list[list[int]] = [[] for _ in range(MARKS)]
    left = list(updates)
    for n, began in enumerate(starts):
        goes_on = n == len(bounds)
        until = now if goes_on else bounds[n]
        updated = 0
        while left and left[0] <= until:
            updated = left.pop(0)
        marks = MARKS if updated else seen if goes_on else 1
        for mark, at in enumerate(usual.place(began, updated, until)[:marks]):
            noted[mark].append(at)
    return noted
