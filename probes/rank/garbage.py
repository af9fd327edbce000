"""Records garbage collections and their threads without running Python code.

A signal handler runs at the next bytecode, and an exception that it raises inside a collector callback is printed and dropped: a Python
function of ours would lose Ctrl-C or the job's own time limit. So the callback is composed of objects implemented in C.
"""

from __future__ import annotations

import gc
from _thread import get_ident
from collections import deque
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import Any

# A process that has stopped training does not read its events, so the oldest are dropped. If one phase has more than half as many
# collections, only its last ones count. 130 bytes each: 1 MB.
EVENTS_MAX = 1 << 13


class Garbage:
    """Events of garbage collections. Collections never overlap, whatever their threads, so starts and ends alternate."""

    __slots__ = ("callback", "events")

    def __init__(self) -> None:
        self.callback: Any = None
        self.events: deque[tuple[int, int, bool]] = deque(maxlen=EVENTS_MAX)  # time (ns), thread, True at the start

    def listen(self) -> None:
        """Adds a callback to `gc`, which calls `getattr(collector, "start", info)`, and likewise "stop" at the end."""

        class Collector:
            start = property(partial(next, self._noting(starts=True)))
            stop = property(partial(next, self._noting(starts=False)))

        self.callback = self.callback or partial(getattr, Collector())
        if self.callback not in gc.callbacks:
            gc.callbacks.append(self.callback)

    def stop(self) -> None:
        """Stops noting collections, until `listen` is called again."""
        if self.callback in gc.callbacks:
            gc.callbacks.remove(self.callback)
        self.events.clear()

    def _noting(self, *, starts: bool) -> Any:
        """An iterator that records one event at each `next`."""
        return map(self.events.append, zip(iter(perf_counter_ns, None), iter(get_ident, None), repeat(starts)))

    @property
    def under_way(self) -> bool:
        return bool(self.events) and self.events[-1][2]

    def take(self, thread: int) -> list[tuple[int, int]]:
        """(begin, end) of the collections that have ended in this thread since the last call, in ns."""
        found: list[tuple[int, int]] = []
        events = self.events
        # only the present events: appending here may start a collection, which adds two more
        for _ in range(len(events)):
            if not events or (events[0][2] and len(events) == 1):
                break
            began, where, starts = events.popleft()
            if starts and not events[0][2]:  # else its start was dropped
                ended = events.popleft()[0]
                if where == thread:
                    found.append((began, ended))
        return found
