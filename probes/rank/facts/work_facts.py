"""The work of a step: number and identity of learning parameters, size of batches. It is sampled, and changes are recorded.

A job that slows down because more parameters learn (unfreezing) or images grow has no problem.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import SIZES_APART
from .batch_contents import batch_bytes

if TYPE_CHECKING:
    from .process_facts import Facts

EVERY_NS = 1_000_000_000
COST_TIMES = 1_000  # interval in multiples of the cost (0.2 ms for a thousand parameters): at most 1/1000 of the time
CONFIRMED = 3  # equal samples needed, since text batches differ in size and layers may be dropped at random
CHANGES_MAX = 100


class Work:
    """The work of one process. A sample covers one whole step with all of its optimizers."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._changes: list[list[int]] = []
        self._pending: list[int] = []
        self._agreed = 0
        self._due_ns = 0
        self._cost_ns = 0
        self._sample = [-1, 0, 0, 0]

    def sampled(self, step: int, now: int, *, fetched_unobserved: bool = False) -> bool:
        """True if this step is sampled. A sample ends when the next one starts.

        `fetched_unobserved`: the size of the step's batch is unknown, so no sample starts.
        """
        if step == self._sample[0]:
            return True
        if fetched_unobserved or now < self._due_ns:
            return False
        if self._sample[1]:
            self._settle(self._sample)
        self._sample, self._cost_ns, self._due_ns = [step, 0, 0, 0], 0, now + EVERY_NS
        return True

    def batch(self, batch: Any) -> None:
        began = perf_counter_ns()
        self._sample[3] += batch_bytes(batch)
        self._spent(began)

    def optimizer(self, optimizer: Any) -> None:
        """Called before the optimizer's step, when learning parameters have gradients."""
        began = perf_counter_ns()
        learning = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if learning and not self._sample[1]:
            self._sample[2] = id(learning[0])
        self._sample[1] += sum(p.numel() for p in learning)
        self._spent(began)

    def _spent(self, began: int) -> None:
        now = perf_counter_ns()
        self._cost_ns += now - began
        self._due_ns = max(self._due_ns, now + COST_TIMES * self._cost_ns)

    def _settle(self, sample: list[int]) -> None:
        if not self._changes:
            self._changes.append(sample)
            self._facts.values["work"] = self._changes  # written with the other facts
        elif _alike(sample, self._changes[-1]):
            self._pending = []
        elif self._pending and _alike(sample, self._pending):
            self._agreed += 1
        else:
            self._pending, self._agreed = sample, 1
        if self._pending and self._agreed >= CONFIRMED and len(self._changes) < CHANGES_MAX:
            self._changes.append(self._pending)
            self._pending = []
            self._facts.write()


def _alike(one: list[int], other: list[int]) -> bool:
    small, large = sorted((one[3], other[3]))
    return one[1:3] == other[1:3] and (not small or large < SIZES_APART * small)
