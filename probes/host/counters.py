"""Bookkeeping for probes between ticks: each gap is reported once, and counters survive a change of their source."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from rn50_advisor.advisor.model.metrics import ProbeGap


class GapsOnce:
    """Collects gaps during a tick and returns each gap only once."""

    def __init__(self) -> None:
        self._reported: set[Hashable] = set()
        self._new: list[ProbeGap] = []

    def add(
        self, metrics: str | Iterable[str], scope: str, reason: str, hint: str = "", *, key: Hashable = None
    ) -> None:
        """`key` replaces the scope if many scopes lack the same metric for the same reason (64 workers, one gap)."""
        for metric in (metrics,) if isinstance(metrics, str) else metrics:
            name = (metric, scope if key is None else key)
            if name not in self._reported:
                self._reported.add(name)
                self._new.append(ProbeGap(metric, scope, reason, hint))

    def take(self) -> tuple[ProbeGap, ...]:
        new, self._new = tuple(self._new), []
        return new


class Continued:
    """Counters read from a source that may be replaced (a process moves to another cgroup, a job to another network).

    Keeps the old source's count and ignores the new one's earlier count, so the counter never jumps or falls.
    """

    def __init__(self) -> None:
        self._state: dict[
            tuple[int, str], tuple[Hashable, float, float]
        ] = {}  # owner and counter -> source, raw, continued

    def value(self, owner: int, counter: str, source: Hashable, raw: float) -> float:
        last = self._state.get((owner, counter))
        if last is None:
            value = raw
        elif last[0] == source:
            value = last[2] + (raw - last[1] if raw >= last[1] else raw)  # a source that fell restarted at 0
        else:
            value = last[2]
        self._state[owner, counter] = (source, raw, value)
        return value

    def prune(self, owners: Collection[int]) -> None:
        for key in [key for key in self._state if key[0] not in owners]:
            del self._state[key]
