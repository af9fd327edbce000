"""Predicts the step time after a change of one part: the only source of predicted speed-ups.

A step of N ranks takes the slowest rank's own work, plus the exposed wire time, plus jitter (`jitter_s`), because the slowest rank changes
from step to step. A change of one part changes the own work of its ranks; the next slowest rank caps the gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Saving

_WARMER = 0.15  # on CPUs


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds per step. `own[rank][phase]`: work of a rank without its waiting for other ranks."""

    step_s: float
    own: Mapping[int, Mapping[str, float]]
    wire_s: float = 0.0
    # CPU seconds of the whole job per step, and the cores it may use: their quotient is a lower bound of the step
    job_cpu_s: float | None = None
    allowed_cores: float | None = None
    hosts: int = 1  # with equally many ranks; the CPU seconds and cores are those of one host
    on_gpu: bool = False  # GPUs do the work; the caches of a CPU make none of it shorter

    @property
    def ranks_of_host(self) -> float:
        return max(1.0, len(self.own) / self.hosts)

    @property
    def warmer(self) -> float:
        """Share by which work shrinks per share of the step that is no longer spent waiting."""
        return 0.0 if self.on_gpu else _WARMER

    def own_s(self, rank: int) -> float:
        return sum(self.own[rank].values())

    @property
    def slowest_s(self) -> float:
        return max((self.own_s(rank) for rank in self.own), default=0.0)

    @property
    def jitter_s(self) -> float:
        """Mean time of a step beyond the slowest rank's own work and the exposed communication."""
        return max(0.0, self.step_s - self.slowest_s - self.wire_s)

    def cpu_floor_s(self, job_cpu_s: float | None = None) -> float:
        """The shortest step that the cores allow for this CPU work per step (default: the measured one); 0 if unknown."""
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
        """Step time if `changes[rank, phase]` seconds replace the measured ones, with this wire and jitter; at least `floor_s`."""
        own = {rank: dict(phases) for rank, phases in self.own.items()}
        for (rank, phase), seconds in changes.items():
            own[rank][phase] = max(0.0, seconds)
        slowest = max((sum(phases.values()) for phases in own.values()), default=0.0)
        wire = self.wire_s if wire_s is None else wire_s
        # Jitter comes from work that varies. It shrinks with the slowest rank, but does not grow with it.
        scale = min(1.0, slowest / self.slowest_s) if self.slowest_s > 0 else 1.0
        jitter = self.jitter_s if jitter_s is None else jitter_s
        return max(slowest + wire + jitter * scale, floor_s, 1e-9)

    def at_best(self, after_s: float) -> float:
        """The shortest time of a step that is predicted to take `after_s`, if no late rank and no other work interrupts it any more.

        After a wait, work starts with cold caches on a core that has slept; without the wait, the work itself is shorter. Measured on two
        cores: steps predicted to shrink to 0.31, 0.38 and 0.42 of their length shrank to 0.27, 0.36 and 0.37. Other work of the loop
        between the steps has the same effect: in a process that alternated with and without it, a pause, writes, an evaluation or other
        computing of 13 to 31 % of the step made the rest of the step 1.6 to 3.2 % longer. All of this is of work on CPUs.
        """
        return after_s * (1.0 - self.warmer * max(0.0, 1.0 - after_s / self.step_s))

    def saving(self, best_s: float, worst_s: float, basis: str) -> Saving:
        """The saving if a step takes between `best_s` and `worst_s` seconds; neither counts as longer than today's."""
        best, worst = sorted((min(best_s, self.step_s), min(worst_s, self.step_s)))
        return Saving(
            seconds_per_step=(self.step_s - worst, self.step_s - best),
            speedup=(self.step_s / max(worst, 1e-9), self.step_s / max(best, 1e-9)),
            basis=basis,
        )
