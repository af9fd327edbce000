"""Optimizers that step in the backward, in other threads than the one that trains: on CUDA autograd runs the hooks of gradients in a thread
of each device, while the one that called `backward` waits. It takes what was noted here when its backward ends.
"""

from __future__ import annotations

from _thread import get_ident
from time import perf_counter_ns

UPDATES_MAX = 4096  # of one backward: one for each parameter, and all of them are one update to the account
THREADS_MAX = 64


class Hooked:
    """Every change is one operation on a dict or list: any thread may make it at any time."""

    __slots__ = ("_begun", "_done")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # thread -> when (ns) its optimizer began to step
        self._done: list[tuple[int, int, int]] = []  # begin, end, id of the optimizer

    def begin(self) -> None:
        if len(self._begun) < THREADS_MAX:
            self._begun.setdefault(get_ident(), perf_counter_ns())  # a scaler's step, then the optimizer's own

    def end(self, optimizer: int) -> None:
        began = self._begun.pop(get_ident(), None)
        if began is not None and len(self._done) < UPDATES_MAX:
            self._done.append((began, perf_counter_ns(), optimizer))

    def take(self, since: int) -> list[tuple[int, int, int]]:
        """Those that began after `since`; none is kept, nor one that raised and has told of no end."""
        if self._begun:
            self._begun.clear()
        if not self._done:
            return []
        done, self._done = self._done, []
        return [update for update in done if update[0] >= since]
