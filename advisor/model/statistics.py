"""Small robust statistics over numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STRETCHES = 16


def median(values: Array) -> float:
    """Raises ValueError for an empty array: a median of nothing is not zero."""
    if values.size == 0:
        raise ValueError("median of nothing")
    return float(np.median(values))


def weighted_quantile(values: Array, weights: Array, share: float) -> float:
    """The quantile of values that each count as often as their weight. Raises ValueError for an empty array.

    Rows of a run that was folded hold one step or hundreds; unweighted, the single ones among them, which are its outliers, would decide.
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

    Neighbouring values are alike, so means of stretches are compared, not single values.
    """
    stretches = [float(part.mean()) for part in np.array_split(values, min(values.size, _STRETCHES))]
    return float(2 * np.std(stretches, ddof=1) / np.sqrt(len(stretches)))


def relative_error(values: Array) -> float:
    """Two standard errors of the mean over the mean; 1 at most, and for fewer than two values."""
    if values.size < 2 or not values.mean():
        return 1.0
    return min(1.0, error_of_mean(values) / abs(float(values.mean())))


def increase(t_ns: NDArray[np.int64], counter: Array, start_ns: int, end_ns: int) -> tuple[float, float] | None:
    """(growth of a counter, seconds) over the readings that enclose an interval; None with fewer than two."""
    # the last reading before and the first one after belong to it: readings are sparse, and a counter loses nothing between them
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
    """Median over all keys but one. Raises ValueError when there is no other."""
    return median(np.array([value for other, value in by_key.items() if other != key], dtype=np.float64))


def beyond_others(by_key: Mapping[int, float]) -> dict[int, float]:
    """For every key by how much its value exceeds the median of all others'. Raises ValueError when there is one key alone.

    Sorted once: with a thousand ranks, a median for each of them would take a second.
    """
    if len(by_key) < 2:
        raise ValueError("median of nothing")
    keys, values = list(by_key), np.array(list(by_key.values()), np.float64)
    ordered, place = np.sort(values), np.argsort(np.argsort(values, kind="stable"))
    left = values.size - 1
    lower, upper = (ordered[middle + (place <= middle)] for middle in ((left - 1) // 2, left // 2))
    return dict(zip(keys, (values - 0.5 * (lower + upper)).tolist(), strict=True))
