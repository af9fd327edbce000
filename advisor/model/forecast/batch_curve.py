"""Step time by batch size, as a benchmark of this machine measured it with the job's own model."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """Seconds of a step on one device by batch size in samples, for two or more sizes in ascending order.

    `batch`, the job's own size, is one of them or lies between two. `oom_at`: the smallest batch that did not fit.
    """

    batch: float
    batches: tuple[float, ...]
    step_s: tuple[float, ...]
    oom_at: float | None = None

    def covers(self, batch: float) -> bool:
        return self.batches[0] <= batch <= self.batches[-1]

    def rate(self, batch: float) -> float:
        """Samples/s, with step times interpolated linearly between measured sizes."""
        after = min(max(bisect_left(self.batches, batch), 1), len(self.batches) - 1)
        (one, other), (one_s, other_s) = (row[after - 1 : after + 1] for row in (self.batches, self.step_s))
        return batch / (one_s + (other_s - one_s) * (batch - one) / (other - one))

    def gain(self, batch: float) -> float:
        """Samples/s divided by those of the job's own batch."""
        return self.rate(batch) / self.rate(self.batch)

    def larger(self, *, near: float, most: float = math.inf) -> float:
        """The smallest batch whose samples/s are within `near` of the best rate: the job's own, or a larger measured one up to `most`."""
        fits = [size for size in self.batches if self.batch < size <= most and size < (self.oom_at or math.inf)]
        sizes = [self.batch, *fits]
        best = max(self.rate(size) for size in sizes)
        return next(size for size in sizes if self.rate(size) >= (1.0 - near) * best)

    def smaller(self, *, near: float) -> float:
        """The smallest measured batch whose samples/s are within `near` of the job's own; the job's own batch if there is none."""
        least = (1.0 - near) * self.rate(self.batch)
        return next((size for size in self.batches if size < self.batch and self.rate(size) >= least), self.batch)
