"""By how much two runs differ, and how sure that is: pure numbers.

Two things make the mean step of a run uncertain. Within a run, neighbouring steps resemble each other: whole blocks of steps
are drawn again (bootstrap). Between runs of one and the same job, memory layout, placement on cores and the state of a shared
machine differ, and no number of steps shows it: that part is measured on repeated runs and added.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from advisor.analysis.blocks import StepBlocks
from advisor.core.comparison import Estimate

Array = NDArray[np.float64]

# At 95 % one of twenty comparisons of a job with itself would be called a change; CI asks more often than that.
CONFIDENCE = 0.99
_DRAWS = 4000
_SEED = 20261120  # the same two runs always give the same interval
_Z = 2.575829  # of the normal distribution at that confidence
_ONE_FREEDOM = 63.657  # of Student's t


def drawn(blocks: StepBlocks, *, seed: int) -> dict[str, Array]:
    """Means of the step ("step") and of its phases, once for each draw of blocks with replacement."""
    count = blocks.steps.size
    random = np.random.default_rng(_SEED + seed)
    weights = random.multinomial(count, np.full(count, 1.0 / count), size=_DRAWS).astype(np.float64)
    steps = weights @ blocks.steps
    named = {"step": blocks.seconds, **blocks.phases}
    return {name: _widened(weights @ values / steps, values, blocks.steps) for name, values in named.items()}


def _widened(draws: Array, values: Array, steps: Array) -> Array:
    """Few blocks spread less than they should, and their spread is itself uncertain: as Student's t does it."""
    centre = values.sum() / steps.sum()
    freedom = values.size - 1
    if freedom < 1:
        return np.full(draws.size, centre)
    factor = math.sqrt(values.size / freedom) * student(freedom) / _Z
    if draws.min() <= 0.0:  # a phase that most blocks do without
        return np.asarray(centre + factor * (draws - centre))
    return np.asarray(centre * np.exp(factor * np.log(draws / centre)))  # nothing becomes shorter than nothing


def student(freedom: int) -> float:
    """The two-sided point of Student's t at this confidence (expansion in 1/freedom, good to 5 % from 4 on)."""
    if freedom < 2:
        return _ONE_FREEDOM
    z = _Z
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def speed_ratio(
    base: dict[str, Array],
    other: dict[str, Array],
    scale: float,
    *,
    between_runs: tuple[float, float],
    spared_s: tuple[float, float],
) -> Estimate:
    """Speed of `other` over `base`; `scale`: work of a step of `other` over one of `base`.

    `between_runs`: share of the step by which each run may differ from its like, standard deviation. `spared_s`: seconds per
    step of each run that chance has brought and that may as well not be there. The interval covers both.
    """
    noise = np.random.default_rng(_SEED).normal(0.0, math.hypot(*between_runs), _DRAWS)
    raw = np.log(base["step"] / other["step"])
    without = np.log(_less(base["step"], spared_s[0]) / _less(other["step"], spared_s[1]))
    ends = [np.percentile(values + noise, _ends()) for values in (raw, without)]
    value = float(scale * np.mean(base["step"]) / np.mean(other["step"]))
    lo, hi = min(e[0] for e in ends), max(e[1] for e in ends)
    return Estimate(value, scale * math.exp(lo), scale * math.exp(hi))


def _less(step_s: Array, spared_s: float) -> Array:
    return np.maximum(step_s - spared_s, 0.1 * step_s)


def phase_delta(base: Array, other: Array, *, between_runs: tuple[float, float]) -> Estimate:
    """Seconds per step that a phase of `other` takes more; what runs differ by in any case goes by the phase's own length."""
    width = math.hypot(between_runs[0] * float(base.mean()), between_runs[1] * float(other.mean()))
    noise = np.random.default_rng(_SEED).normal(0.0, 1.0, _DRAWS) * width
    lo, hi = np.percentile(other - base + noise, _ends())
    return Estimate(float(other.mean() - base.mean()), float(lo), float(hi))


def _ends() -> tuple[float, float]:
    rest = 100.0 * (1.0 - CONFIDENCE) / 2.0
    return rest, 100.0 - rest
