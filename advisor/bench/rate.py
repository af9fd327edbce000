"""Images/s and how sure they are, from the times of single steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rn50_advisor.advisor.model.documents.comparison import Estimate

STRETCHES = 10
CONFIDENCE = 0.95


def rate_of(steps_s: Sequence[float], images: int, *, together: int = 1) -> Estimate:
    """`images` of one step. Median over stretches of steps that follow each other, with the interval of its order statistics.

    Neighbouring steps are alike, so stretches are compared and not steps. Where that many loader workers hand over
    `together`, a rush of steps follows a wait: stretches are whole rounds then. Fewer than six stretches have no
    interval of 95 %: it is all they span.
    """
    if not steps_s:
        raise ValueError("a rate of no steps")
    together = min(together, len(steps_s))
    rounds_s = np.reshape(steps_s[: len(steps_s) // together * together], (-1, together)).sum(axis=1)
    parts = [part for part in np.array_split(rounds_s, STRETCHES) if part.size]
    rates = sorted(float(images * together * part.size / part.sum()) for part in parts)
    rank = _rank(len(rates))
    return Estimate(float(np.median(rates)), rates[rank], rates[-1 - rank])


def _rank(count: int) -> int:
    """How many values may be left out at either end and the median of what they are drawn from still lie between the rest."""
    rank, outside = -1, 0.0
    for place in range(count // 2):
        outside += 2 * math.comb(count, place) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = place
    return max(rank, 0)
