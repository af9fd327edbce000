"""The advisor's own cost, and the order in which it drops measurements when that is too high. Rings are never dropped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

WINDOW_S = 30.0
MARKS = "marks of most steps"  # what a rank gives up by itself
# Worst cost/benefit first. Some are names of host probes, the others are switches of the agent.
SHED_ORDER = ("stacks", "cpu_cores", "gpu", "workers", "data_files", "allowances", "network", "disk", "memory")


class CostBook:
    """CPU seconds of this process and of its py-spy children."""

    def __init__(self, *, budget: float, grace_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._quiet_until_s = clock() + grace_s  # imports and the first stacks are paid once
        self._window: deque[tuple[float, float]] = deque()
        self._left = list(SHED_ORDER)

    def cpu_s(self, children_cpu_s: float) -> float:
        return time.process_time() + children_cpu_s

    def over_budget(self, cpu_s: float) -> float | None:
        """The share of a core over the last half minute if it passes the budget, else None. A returned share starts a new window."""
        now_s = self._clock()
        if now_s < self._quiet_until_s:
            return None
        self._window.append((now_s, cpu_s))
        first_s, first_cpu_s = self._window[0]
        if now_s - first_s < WINDOW_S:
            return None
        self._window.popleft()
        share = (cpu_s - first_cpu_s) / (now_s - first_s)
        if share <= self._budget:
            return None
        self._window.clear()
        return share

    def next_to_shed(self, active: Sequence[str]) -> str | None:
        """The next in order that is still active; each is named once."""
        while self._left:
            name = self._left.pop(0)
            if name in active:
                return name
        return None
