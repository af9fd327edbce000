"""What a step works on: how many parameters learn, which, and how large its batches are. Looked at now and then, noted where it changes.

A job that becomes slower because more of it learns (unfreezing), or with larger pictures, has not become slower by a fault.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import SIZES_APART
from .loader_facts import batch_bytes

if TYPE_CHECKING:
    from .process_facts import Facts

EVERY_NS = 1_000_000_000
COST_TIMES = 1_000  # a look at a thousand parameters takes 0.2 ms: of the time, never more than a thousandth
CONFIRMED = 3  # looks that agree: batches of text differ in size, and layers may be dropped by chance
CHANGES_MAX = 100


class Work:
    """Of one process. A look covers one whole step, all of its optimizers."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._changes: list[list[int]] = []
        self._pending: list[int] = []
        self._agreed = 0
        self._due_ns = 0
        self._cost_ns = 0
        self._seen = [-1, 0, 0, 0]

    def looks(self, step: int, now: int, *, fed: bool = False) -> bool:
        """Whether this step is looked at. What the last look saw is settled when the next one begins.

        `fed`: its batch is there already, and was not looked at: then it is left alone, for a batch unseen is as large as any other.
        """
        if step == self._seen[0]:
            return True
        if fed or now < self._due_ns:
            return False
        if self._seen[1]:
            self._settle(self._seen)
        self._seen, self._cost_ns, self._due_ns = [step, 0, 0, 0], 0, now + EVERY_NS
        return True

    def batch(self, batch: Any) -> None:
        began = perf_counter_ns()
        self._seen[3] += batch_bytes(batch)
        self._spent(began)

    def optimizer(self, optimizer: Any) -> None:
        """Before its step: what learns has a gradient."""
        began = perf_counter_ns()
        learning = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if learning and not self._seen[1]:
            self._seen[2] = id(learning[0])
        self._seen[1] += sum(p.numel() for p in learning)
        self._spent(began)

    def _spent(self, began: int) -> None:
        now = perf_counter_ns()
        self._cost_ns += now - began
        self._due_ns = max(self._due_ns, now + COST_TIMES * self._cost_ns)

    def _settle(self, seen: list[int]) -> None:
        if not self._changes:
            self._changes.append(seen)
            self._facts.values["work"] = self._changes  # written with the other facts
        elif _alike(seen, self._changes[-1]):
            self._pending = []
        elif self._pending and _alike(seen, self._pending):
            self._agreed += 1
        else:
            self._pending, self._agreed = seen, 1
        if self._pending and self._agreed >= CONFIRMED and len(self._changes) < CHANGES_MAX:
            self._changes.append(self._pending)
            self._pending = []
            self._facts.write()


def _alike(one: list[int], other: list[int]) -> bool:
    small, large = sorted((one[3], other[3]))
    return one[1:3] == other[1:3] and (not small or large < SIZES_APART * small)
