"""When garbage is collected, and in which thread: noted without a line of Python.

A signal's handler runs at the first bytecode there is, and what it raises in a callback of the collector is printed and forgotten:
Ctrl-C, or the job's own time limit, would be lost in a function of ours. So what notes the times is put together from parts written in C.
"""

from __future__ import annotations

import gc
from _thread import get_ident
from collections import deque
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import Any

# Nobody reads them in a process that trains no more: the oldest go. Of more than half as many collections within one phase the last count.
# 130 bytes each: 1 MB.
EVENTS_MAX = 1 << 13


class Garbage:
    """Collections follow each other, whichever threads they run in: a begin and an end in turns."""

    __slots__ = ("callback", "events")

    def __init__(self) -> None:
        self.callback: Any = None
        self.events: deque[tuple[int, int, bool]] = deque(maxlen=EVENTS_MAX)  # when (ns), thread, whether it begins

    def listen(self) -> None:
        """`gc` is given a callback: it calls `getattr(collector, "start", info)`, and the like at the end."""

        class Collector:
            start = property(partial(next, self._noting(begins=True)))
            stop = property(partial(next, self._noting(begins=False)))

        self.callback = partial(getattr, Collector())
        gc.callbacks.append(self.callback)

    def stop(self) -> None:
        """Of a process whose collections nobody asks for."""
        if self.callback in gc.callbacks:
            gc.callbacks.remove(self.callback)
        self.events.clear()

    def _noting(self, *, begins: bool) -> Any:
        """Each `next` of it notes one event."""
        return map(self.events.append, zip(iter(perf_counter_ns, None), iter(get_ident, None), repeat(begins)))

    @property
    def under_way(self) -> bool:
        return bool(self.events) and self.events[-1][2]

    def take(self, thread: int) -> list[tuple[int, int]]:
        """(begin, end) of the collections that have ended in this thread since the last call, in ns."""
        found: list[tuple[int, int]] = []
        events = self.events
        # as many as there are now: what is kept here may itself begin a collection, which notes two more
        for _ in range(len(events)):
            if not events or (events[0][2] and len(events) == 1):
                break
            began, where, begins = events.popleft()
            if begins and not events[0][2]:  # else its other half was dropped
                ended = events.popleft()[0]
                if where == thread:
                    found.append((began, ended))
        return found
