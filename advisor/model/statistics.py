"""Small robust statistics over numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STRETCHES = 16


def median(values: Array) -> float:
    """Median of the values. Raises ValueError for an empty array, whose median is not zero."""
    if values.size == 0:
        raise ValueError("median of nothing")
    return float(np.median(values))


def weighted_quantile(values: Array, weights: Array, share: float) -> float:
    """The quantile of values that count as often as their weight. Raises ValueError for an empty array.

    A row of a folded run holds one step or hundreds. Single steps are its outliers; without weights they would dominate.
    """
    if values.size == 0:
        raise ValueError("quantile of nothing")
    if (weights == weights[0]).all():
        return float(np.quantile(values, share))
    order = np.argsort(values, kind="stable")
    filled = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(filled, share * filled[-1]), values.size - 1)])


def error_of_mean(values: Array) -> float:
    """Two standard errors of the mean of at least two values.

    Neighbouring values are correlated, so the error comes from means of stretches, not from single values.
    """
    stretches = [float(part.mean()) for part in np.array_split(values, min(values.size, _STRETCHES))]
    return float(2 * np.std(stretches, ddof=1) / np.sqrt(len(stretches)))


def relative_error(values: Array) -> float:
    """Two standard errors of the mean divided by the mean; at most 1, and 1 for fewer than two values."""
    if values.size < 2 or not values.mean():
        return 1.0
    return min(1.0, error_of_mean(values) / abs(float(values.mean())))


def increase(t_ns: NDArray[np.int64], counter: Array, start_ns: int, end_ns: int) -> tuple[float, float] | None:
    """(growth of a counter, seconds) over the readings that enclose an interval; None with fewer than two readings."""
    # Include the last reading before and the first one after: readings are sparse, and a counter loses nothing between them.
    first = max(0, int(np.searchsorted(t_ns, start_ns, side="right")) - 1)
    last = min(t_ns.size, int(np.searchsorted(t_ns, end_ns, side="left")) + 1)
    if last - first < 2:
        return None
    times, readings = t_ns[first:last], counter[first:last]
    steps = np.diff(readings)
    growth = float(steps[steps > 0].sum())
    seconds = float(times[-1] - times[0]) / 1e9
    return (growth, seconds) if seconds > 0 else None


def others_median(by_key: dict[int, float], key: int) -> float:
    """Median over all keys except one. Raises ValueError if there is no other key."""
    return median(np.array([value for other, value in by_key.items() if other != key], dtype=np.float64))


def beyond_others(by_key: Mapping[int, float]) -> dict[int, float]:
    """Excess of each key's value over the median of all other values. Raises ValueError with fewer than two keys.

    The values are sorted once: with a thousand ranks, one median per rank would take a second.
    """
    if len(by_key) < 2:
        raise ValueError("median of nothing")
    keys, values = list(by_key), np.array(list(by_key.values()), np.float64)
    ordered, place = np.sort(values), np.argsort(np.argsort(values, kind="stable"))
    left = values.size - 1
    lower, upper = (ordered[middle + (place <= middle)] for middle in ((left - 1) // 2, left // 2))
    return dict(zip(keys, (values - 0.5 * (lower + upper)).tolist(), strict=True))
