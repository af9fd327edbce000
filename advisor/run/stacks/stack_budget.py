"""Paces stack samples: dense enough at first for short runs, then within a fixed share of one core."""

from __future__ import annotations

_BACK_OFF_AFTER = 5  # dumps without a result
_BACK_OFF_MAX = 16
_MISS_COUNTS = 1 / 3  # of a dump: of 10 dumps of a loop that loads half of the time, 5 say too little
_CREDIT_MAX_S = 2.0


class StackBudget:
    """Times in seconds of one monotonic clock."""

    def __init__(self, *, now_s: float, share: float, period_s: float, first: int, dense_s: float) -> None:
        self._share = share
        self._period_s = period_s
        self._first = first
        self._dense_until_s = now_s + dense_s
        self._accrued_s = now_s
        self._credit_s = 0.0
        self._dumps: dict[int, float] = {}
        self._misses: dict[int, int] = {}
        self._last_s: dict[int, float] = {}
        self._any_s = -1e9

    def allows(self, rank: int, now_s: float) -> bool:
        dense = now_s < self._dense_until_s
        # in the dense time one a second over all ranks, so that 8 ranks cost no more than one
        if dense and now_s - self._any_s < self._period_s / 2:
            return False
        pause_s = self._period_s / 2 if dense else self._period_s
        misses = self._misses.get(rank, 0)
        pause_s *= min(_BACK_OFF_MAX, 2 ** max(0, misses // _BACK_OFF_AFTER))
        if now_s - self._last_s.get(rank, -1e9) < pause_s:
            return False
        return self._dumps.get(rank, 0) < self._first or self._credit(now_s) > 0

    def spent(self, rank: int, now_s: float, cpu_s: float, *, hit: bool) -> None:
        """Charges one dump to the budget; `hit`: it found something."""
        self._credit(now_s)
        self._dumps[rank] = self._dumps.get(rank, 0) + (1 if hit else _MISS_COUNTS)
        if self._dumps[rank] > self._first:
            self._credit_s -= cpu_s
        self._misses[rank] = 0 if hit else self._misses.get(rank, 0) + 1
        self._last_s[rank] = self._any_s = now_s

    def _credit(self, now_s: float) -> float:
        self._credit_s = min(_CREDIT_MAX_S, self._credit_s + (now_s - self._accrued_s) * self._share)
        self._accrued_s = now_s
        return self._credit_s
