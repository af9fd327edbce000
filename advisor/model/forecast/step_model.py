"""Predicts the step time after a change of one part: the only source of predicted speed-ups.

A step of N ranks is as long as the slowest rank's own work plus the exposed wire time, plus what chance adds because the slowest rank
changes from step to step (`jitter_s`). A change of one part moves the own work of its ranks; the next slowest rank caps the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Saving

WARMER = 0.15  # of the work, for each step that was spent waiting


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds per step. `own[rank][phase]`: work of a rank, its waiting for other ranks left out."""

    step_s: float
    own: Mapping[int, Mapping[str, float]]
    wire_s: float = 0.0
    # CPU seconds that the whole job burns per step, and the cores it may burn them on: no change of waiting can beat their quotient
    job_cpu_s: float | None = None
    allowed_cores: float | None = None
    hosts: int = 1  # that the ranks are spread over evenly; the CPU seconds and cores are those of one of them

    @property
    def ranks_of_host(self) -> float:
        return max(1.0, len(self.own) / self.hosts)

    def own_s(self, rank: int) -> float:
        return sum(self.own[rank].values())

    @property
    def slowest_s(self) -> float:
        return max((self.own_s(rank) for rank in self.own), default=0.0)

    @property
    def jitter_s(self) -> float:
        """Mean time of a step beyond its slowest rank and the exposed communication."""
        return max(0.0, self.step_s - self.slowest_s - self.wire_s)

    def cpu_floor_s(self, job_cpu_s: float | None = None) -> float:
        """The shortest step the cores allow, for this CPU work per step (default: today's); 0 where it is unknown."""
        work = self.job_cpu_s if job_cpu_s is None else job_cpu_s
        if work is None or not self.allowed_cores:
            return 0.0
        return work / self.allowed_cores

    def step_if(
        self,
        changes: Mapping[tuple[int, str], float],
        *,
        wire_s: float | None = None,
        jitter_s: float | None = None,
        floor_s: float = 0.0,
    ) -> float:
        """Step time when `changes[rank, phase]` seconds replace today's, with this wire and jitter; never below `floor_s`."""
        own = {rank: dict(phases) for rank, phases in self.own.items()}
        for (rank, phase), seconds in changes.items():
            own[rank][phase] = max(0.0, seconds)
        slowest = max((sum(phases.values()) for phases in own.values()), default=0.0)
        wire = self.wire_s if wire_s is None else wire_s
        # jitter comes from the work that varies: it shrinks with the slowest rank, it does not grow with it
        scale = min(1.0, slowest / self.slowest_s) if self.slowest_s > 0 else 1.0
        jitter = self.jitter_s if jitter_s is None else jitter_s
        return max(slowest + wire + jitter * scale, floor_s, 1e-9)

    def at_best(self, after_s: float) -> float:
        """The shortest that a step may become which is expected to take `after_s`, once nothing interrupts it: no late rank, no other work.

        Who waits starts with cold caches on a core that has slept: without the wait the work itself is shorter. Measured on two cores:
        steps that were to take 0.31, 0.38 and 0.42 of what they took came to 0.27, 0.36 and 0.37. What the loop itself does in between
        has the same effect: in a process that took turns with and without, a pause, writes, an evaluation or other computing of 13 to
        31 % of the step made the rest of it 1.6 to 3.2 % longer.
        """
        return after_s * (1.0 - WARMER * max(0.0, 1.0 - after_s / self.step_s))

    def saving(self, best_s: float, worst_s: float, basis: str) -> Saving:
        """The saving of a step that would take between `best_s` and `worst_s` seconds."""
        best, worst = sorted((min(best_s, self.step_s), min(worst_s, self.step_s)))
        return Saving(
            seconds_per_step=(self.step_s - worst, self.step_s - best),
            speedup=(self.step_s / max(worst, 1e-9), self.step_s / max(best, 1e-9)),
            basis=basis,
        )
