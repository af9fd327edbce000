"""Records optimizer steps inside the backward pass in other threads. On CUDA, autograd runs gradient hooks in one thread per device while
the thread that called `backward` waits. That thread reads these records when its backward ends.
"""

from __future__ import annotations

from _thread import get_ident
from time import perf_counter_ns

UPDATES_MAX = 4096  # steps of one backward, one per parameter; the account counts all of them as one update
THREADS_MAX = 64


class Hooked:
    """Optimizer steps of hooks. Every change is a single operation on a dict or list, so any thread may make it at any time."""

    __slots__ = ("_begun", "_done")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # thread -> start (ns) of its optimizer's step
        self._done: list[tuple[int, int, int]] = []  # begin, end, id of the optimizer

    def begin(self) -> None:
        if len(self._begun) < THREADS_MAX:
            self._begun.setdefault(get_ident(), perf_counter_ns())  # the scaler's step contains the optimizer's own

    def end(self, optimizer: int) -> None:
        began = self._begun.pop(get_ident(), None)
        if began is not None and len(self._done) < UPDATES_MAX:
            self._done.append((began, perf_counter_ns(), optimizer))

    def take(self, since: int) -> list[tuple[int, int, int]]:
        """Returns and removes the updates that began after `since`. Drops updates without an end, which have raised."""
        if self._begun:
            self._begun.clear()
        if not self._done:
            return []
        done, self._done = self._done, []
        return [update for update in done if update[0] >= since]
