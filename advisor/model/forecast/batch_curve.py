"""Step time by batch size, as a benchmark of this machine measured it with the job's own model."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """Seconds of a step on one device by samples of its batch, the smallest first; two at least, and `batch`, the job's, is among them
    or between two.

    `oom_at`: the smallest that did not fit.
    """

    batch: float
    batches: tuple[float, ...]
    step_s: tuple[float, ...]
    oom_at: float | None = None

    def covers(self, batch: float) -> bool:
        return self.batches[0] <= batch <= self.batches[-1]

    def rate(self, batch: float) -> float:
        """Samples/s; between two sizes that were measured, by the line through their times."""
        after = min(max(bisect_left(self.batches, batch), 1), len(self.batches) - 1)
        (one, other), (one_s, other_s) = (row[after - 1 : after + 1] for row in (self.batches, self.step_s))
        return batch / (one_s + (other_s - one_s) * (batch - one) / (other - one))

    def gain(self, batch: float) -> float:
        """Times as many samples/s as with the job's own batch."""
        return self.rate(batch) / self.rate(self.batch)

    def larger(self, *, near: float, most: float = math.inf) -> float:
        """The smallest batch within `near` of the most samples/s that one up to `most` reaches: the job's own, or a larger measured one."""
        fits = [size for size in self.batches if self.batch < size <= most and size < (self.oom_at or math.inf)]
        sizes = [self.batch, *fits]
        best = max(self.rate(size) for size in sizes)
        return next(size for size in sizes if self.rate(size) >= (1.0 - near) * best)

    def smaller(self, *, near: float) -> float:
        """The smallest measured batch within `near` of the samples/s of the job's own; that one where there is none."""
        least = (1.0 - near) * self.rate(self.batch)
        return next((size for size in self.batches if size < self.batch and self.rate(size) >= least), self.batch)
