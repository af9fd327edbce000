"""Whose the cores of a host are: what of them idles for a job, and what neighbours take of those it could have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cores:
    """Mean cores while training. A quota bounds the time on cores, an affinity which of them; a host may have far more than either."""

    allowed: float  # affinity and quota, the smaller
    job: float  # kept busy by the job
    busy: float  # kept busy on the whole host, by anybody
    others: float | None = None  # of these, by processes that are not of the job
    host: float | None = None
    affinity: float | None = None  # those that the job may get onto, whatever its quota
    stolen: float = 0.0  # by the hypervisor

    @property
    def reach(self) -> float:
        """Cores on which a neighbour could be in the job's way."""
        known = self.affinity if self.affinity is not None else self.host
        return max(self.allowed, known or 0.0)

    @property
    def idle(self) -> float:
        """Cores that the job could still use: within its limit, and not busy with others."""
        free = max(self.allowed, self.host or 0.0) - self.busy - self.stolen
        return min(self.allowed - self.job, free)

    @property
    def taken(self) -> float | None:
        """Cores that neighbours keep busy among those the job may use; None if not measured.

        On cores out of reach they take nothing, and a quota leaves them those beyond it.
        """
        if self.others is None:
            return None
        near = self.others if self.affinity is None else min(self.others, max(0.0, self.reach - self.job))
        return max(0.0, near - (self.reach - self.allowed))
