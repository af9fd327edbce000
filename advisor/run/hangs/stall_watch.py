"""Detects stalls of training ranks and their duration. Their meaning is left to the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_P99_TIMES = 10
_AFTER_FORWARD = frozenset(("backward", "clip", "optimizer", "gap"))
_SECOND_LOOK_NS = 2_500_000_000  # a thread at the same place in both has not run in between
_REFRESH_MAX_NS = 600_000_000_000
# The first step may compile for minutes. Sampling eight ranks every ten seconds would exceed the budget and drop a measurement for the
# whole run; two samples at the start show which ranks are idle.
_FIRST_STEP_REFRESH_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class RankSight:
    """A rank's position at one check."""

    rank: int
    pid: int
    phase: str
    step: int
    since_ns: int
    steps: int  # observed so far
    p99_ns: int = 0
    group: int = 1  # ranks it exchanges with, itself included


@dataclass(frozen=True, slots=True)
class StallState:
    """A stall that goes on (`ended` false: take stacks and report) or is over. Its id never changes."""

    id: str
    since_ns: int
    stalled_ns: int
    ended: bool = False


class StallClock:
    """Called at every check; returns a stall when there is something to report."""

    def __init__(self, *, after_s: float, refresh_s: float) -> None:
        self._after_ns = round(after_s * 1e9)
        self._refresh_ns = round(refresh_s * 1e9)
        self._awake_ns = 0
        self._number = 0
        self._since_ns: int | None = None
        self._still: dict[int, tuple[int, str, int, int]] = {}  # rank -> position when the stall was detected
        self._reported_ns = 0
        self._last_ns = 0
        self._seen_twice = False
        self._first_step = False

    def woke_up(self, now_ns: int) -> None:
        """Excludes a time in which we were stopped ourselves (Ctrl-Z, a suspended machine), most likely together with the job."""
        self._awake_ns = now_ns

    def look(self, now_ns: int, sights: Sequence[RankSight]) -> StallState | None:
        self._last_ns = now_ns
        if self._since_ns is None:
            return self._begin(now_ns, sights)
        here = {sight.rank: _place(sight) for sight in sights}
        if any(here.get(rank) != place for rank, place in self._still.items()):
            return self.end(now_ns)
        if not self._seen_twice and now_ns - self._reported_ns >= _SECOND_LOOK_NS:
            self._seen_twice = True
            return self._state(now_ns)
        if now_ns - self._reported_ns >= self._pause_ns(now_ns):
            return self._report(now_ns)
        return None

    def end(self, now_ns: int) -> StallState | None:
        """Ends the stall because a rank moved or died. None if there was none."""
        if self._since_ns is None:
            return None
        since_ns, self._since_ns = self._since_ns, None
        return StallState(f"stall-{self._number}", since_ns, now_ns - since_ns, ended=True)

    def _begin(self, now_ns: int, sights: Sequence[RankSight]) -> StallState | None:
        # a rank before its first backward pass is not visible, and the others may be waiting for it
        alone = max([len(sights), *(sight.group for sight in sights)]) < 2
        still = [sight for sight in sights if self._stands(now_ns, sight, alone=alone)]
        if not still:
            return None
        self._number += 1
        self._still = {sight.rank: _place(sight) for sight in still}
        self._since_ns = min(max(sight.since_ns, self._awake_ns) for sight in still)
        self._seen_twice = False
        self._first_step = not any(sight.steps for sight in still)
        return self._report(now_ns)

    def _stands(self, now_ns: int, sight: RankSight, *, alone: bool) -> bool:
        if not sight.steps and (alone or sight.phase not in _AFTER_FORWARD):
            return False  # a rank that starts training alone may never make a step: a server's warm-up
        stood_ns = now_ns - max(sight.since_ns, self._awake_ns)
        return stood_ns >= max(self._after_ns, _P99_TIMES * sight.p99_ns)

    def _report(self, now_ns: int) -> StallState:
        self._reported_ns = now_ns
        return self._state(now_ns)

    def _state(self, now_ns: int) -> StallState:
        assert self._since_ns is not None
        return StallState(f"stall-{self._number}", self._since_ns, now_ns - self._since_ns)

    def _pause_ns(self, now_ns: int) -> int:
        """The interval between stacks, ten seconds at first; a job that hangs overnight must not fill the run file with equal stacks."""
        assert self._since_ns is not None
        least_ns = max(self._refresh_ns, _FIRST_STEP_REFRESH_NS) if self._first_step else self._refresh_ns
        return max(least_ns, min((now_ns - self._since_ns) // 6, _REFRESH_MAX_NS))


def _place(sight: RankSight) -> tuple[int, str, int, int]:
    return sight.pid, sight.phase, sight.step, sight.since_ns
