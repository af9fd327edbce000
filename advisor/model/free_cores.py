"""The cores of a host: how many are idle for a job, and how many of those it may use neighbours keep busy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cores:
    """Mean cores during training. A quota limits the time on cores, an affinity limits which cores; a host may have far more."""

    allowed: float  # the smaller of affinity and quota
    job: float  # kept busy by the job
    busy: float  # kept busy on the whole host, by any process
    others: float | None = None  # part of these kept busy by processes outside the job
    host: float | None = None
    affinity: float | None = None  # cores that the job may run on, whatever its quota
    stolen: float = 0.0  # by the hypervisor

    @property
    def reach(self) -> float:
        """Number of cores on which the job and neighbours can compete."""
        known = self.affinity if self.affinity is not None else self.host
        return max(self.allowed, known or 0.0)

    @property
    def idle(self) -> float:
        """Cores that the job could still use: within its limit and not busy with others' work."""
        free = max(self.allowed, self.host or 0.0) - self.busy - self.stolen
        return min(self.allowed - self.job, free)

    @property
    def taken(self) -> float | None:
        """Cores that neighbours keep busy among those the job may use; None if not measured.

        Neighbours outside the affinity take nothing. With a quota, neighbours may use the cores beyond it without taking any.
        """
        if self.others is None:
            return None
        near = self.others if self.affinity is None else min(self.others, max(0.0, self.reach - self.job))
        return max(0.0, near - (self.reach - self.allowed))
