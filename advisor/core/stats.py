"""Small robust statistics over numpy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def median(values: Array) -> float:
    """Raises ValueError for an empty array: a median of nothing is not zero."""
    if values.size == 0:
        raise ValueError("median of nothing")
    return float(np.median(values))


def increase(t_ns: NDArray[np.int64], counter: Array, start_ns: int, end_ns: int) -> tuple[float, float] | None:
    """(growth of a counter, seconds) between first and last reading in an interval; None with fewer than two readings."""
    inside = (t_ns >= start_ns) & (t_ns <= end_ns)
    if int(inside.sum()) < 2:
        return None
    times, readings = t_ns[inside], counter[inside]
    steps = np.diff(readings)
    growth = float(steps[steps > 0].sum())
    seconds = float(times[-1] - times[0]) / 1e9
    return (growth, seconds) if seconds > 0 else None


def others_median(by_key: dict[int, float], key: int) -> float:
    """Median over all keys but one. Raises ValueError when there is no other."""
    return median(np.array([value for other, value in by_key.items() if other != key], dtype=np.float64))
