"""The forecast over worker counts for reports: samples per second by workers per rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rn50_advisor.advisor.model.wording.quantities import rate

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.forecast.worker_model import (
        Forecast,  # it imports numpy, which showing a curve does not need
    )


KNEE_WORDS = "point of diminishing returns"


@dataclass(frozen=True, slots=True)
class WorkerPoint:
    workers: int
    samples_per_s: tuple[float, float]  # lowest and highest, all ranks together

    @property
    def words(self) -> str:
        """`70–82`; one number if both ends have the same digits."""
        low, high = (rate(end, "") for end in self.samples_per_s)
        return low if low == high else f"{low}–{high}"


@dataclass(frozen=True, slots=True)
class WorkerCurve:
    """The forecast for reports. At `measured` workers per rank it is the rate of the run; beyond `knee`, more workers gain little."""

    measured: int
    knee: int
    points: tuple[WorkerPoint, ...]

    def shown(self, most: int = 6) -> tuple[WorkerPoint, ...]:
        """At most `most` points. In order of preference: measured, knee, one worker, knee - 1, twice the knee, knee + 1, last."""
        wanted = (self.measured, self.knee, 1, self.knee - 1, 2 * self.knee, self.knee + 1, self.points[-1].workers)
        known = {point.workers for point in self.points}
        chosen = [n for n in dict.fromkeys(wanted) if n in known][:most]
        return tuple(point for point in self.points if point.workers in chosen)

    @property
    def words(self) -> str:
        """`0 → 51.5 (measured), 1 → 70–82, 2 → 71–84 (point of diminishing returns) samples/s`."""
        parts = []
        for point in self.shown():
            marks = [word for word, n in (("measured", self.measured), (KNEE_WORDS, self.knee)) if n == point.workers]
            parts.append(f"{point.workers} → {point.words}" + (f" ({', '.join(marks)})" if marks else ""))
        return ", ".join(parts) + " samples/s"


def worker_curve(expected: Forecast, samples: float, knee: int) -> WorkerCurve:
    """The curve with all worker counts to twelve, then every fourth, from 32 on every eighth. `samples`: of all ranks in a step."""
    always = (knee, expected.measured)
    counts = [n for n in range(expected.most + 1) if n <= 12 or n % (4 if n < 32 else 8) == 0 or n in always]
    points = tuple(WorkerPoint(n, (samples / expected.worst_s[n], samples / expected.best_s[n])) for n in counts)
    return WorkerCurve(expected.measured, knee, points)
