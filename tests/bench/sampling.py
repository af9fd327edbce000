"""Statistics of few and noisy measurements: medians, their uncertainty, and means without outside disturbances."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

RESAMPLES = 2000


def resampled_medians(values: Sequence[float]) -> list[float]:
    """Returns the sorted medians of bootstrapped samples. The same values give the same answer."""
    draw = random.Random(0)
    return sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))


def interval_95(values: Sequence[float]) -> tuple[float, float]:
    medians = resampled_medians(values)
    return medians[RESAMPLES // 40], medians[RESAMPLES - RESAMPLES // 40 - 1]


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the median."""
    return statistics.stdev(resampled_medians(values))


def level(values: Sequence[float]) -> float:
    """Mean of the values, each capped at twice the median.

    The median would miss what the recorder does in one step of twenty; a plain mean follows any process that took the core for a moment.
    """
    bound = 2 * statistics.median(values)
    return statistics.fmean(min(value, bound) for value in values)
