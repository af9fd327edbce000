"""Estimates how much two runs differ, with confidence intervals. Numbers only.

Two things make the mean step of a run uncertain. Within a run, neighbouring steps resemble each other, so the bootstrap draws whole blocks
of steps. Between runs of the same job, memory layout, placement on cores and the state of a shared machine differ. No number of steps in
one run shows this part; it is measured on repeated runs and added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.compare.step_blocks import StepBlocks
from rn50_advisor.advisor.model.documents.comparison import Estimate

Array = NDArray[np.float64]

# At 95 %, one in twenty comparisons of a job with itself would report a change. CI runs more comparisons than that.
CONFIDENCE = 0.99
_BOOTSTRAP_DRAWS = 4000
# Phases that hardly differ between runs of the same job. Measured on 24 quiet runs of five jobs on two shared CPU cores: forward and
# backward vary by 1 to 6 % of their own length from run to run, the exposed exchange by 13 to 28 %. The phases below vary by at most 0.4 %
# of the step, or by 8 % of their own length if they take 5 % of the step or more. Other load on the cores slows the job's loader first.
_INPUT = ("input_wait", "input_wait.epoch_start")
_BETWEEN = ("optimizer", "gap", "gap.evaluation", "gap.checkpoint")
_BESIDE_STEP = 0.005
_BESIDE_OWN = 0.1
_BOOTSTRAP_SEED = 20261120  # the same two runs always give the same interval
_Z_99 = 2.575829  # two-sided quantile of the normal distribution at this confidence
# Two-sided quantiles of Student's t with one to four degrees of freedom, where the expansion is inaccurate.
_T_99 = (63.657, 9.925, 5.841, 4.604)


def drawn(blocks: StepBlocks, *, seed: int) -> dict[str, Array]:
    """Bootstrap means of the step ("step") and of each phase: one value per draw of blocks with replacement."""
    count = blocks.steps.size
    random = np.random.default_rng(_BOOTSTRAP_SEED + seed)
    weights = random.multinomial(count, np.full(count, 1.0 / count), size=_BOOTSTRAP_DRAWS).astype(np.float64)
    steps = weights @ blocks.steps
    named = {"step": blocks.seconds, **blocks.phases}
    return {name: _widened(weights @ values / steps, values, blocks.steps) for name, values in named.items()}


def _widened(draws: Array, values: Array, steps: Array) -> Array:
    """Widens the draws by Student's t: few blocks underestimate the spread, and the spread itself is uncertain."""
    centre = values.sum() / steps.sum()
    freedom = values.size - 1
    if freedom < 1:
        return np.full(draws.size, centre)
    factor = math.sqrt(values.size / freedom) * student(freedom) / _Z_99
    if draws.min() <= 0.0:  # a phase that is absent from most blocks
        return np.asarray(centre + factor * (draws - centre))
    return np.asarray(centre * np.exp(factor * np.log(draws / centre)))  # logarithms keep times positive


def student(freedom: int) -> float:
    """Two-sided quantile of Student's t at this confidence. From 5 degrees of freedom on, an expansion in 1/freedom, accurate to 3 %."""
    if freedom <= len(_T_99):
        return _T_99[freedom - 1]
    z = _Z_99
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def speed_ratio(
    base: dict[str, Array],
    other: dict[str, Array],
    scale: float,
    *,
    between_runs: tuple[float, float],
    spared_s: tuple[float, float],
) -> Estimate:
    """Speed of `other` over `base`. `scale` is the work in a step of `other` over the work in a step of `base`.

    `between_runs` is the standard deviation between runs of the same job, as a share of the step. `spared_s` is the time per step of each
    run, in seconds, that is due to chance. The interval covers the ratio with and without this time.
    """
    noise = np.random.default_rng(_BOOTSTRAP_SEED).normal(0.0, math.hypot(*between_runs), _BOOTSTRAP_DRAWS)
    raw = np.log(base["step"] / other["step"])
    without = np.log(_less(base["step"], spared_s[0]) / _less(other["step"], spared_s[1]))
    ends = [np.percentile(values + noise, _ends()) for values in (raw, without)]
    value = float(scale * np.mean(base["step"]) / np.mean(other["step"]))
    lo, hi = min(e[0] for e in ends), max(e[1] for e in ends)
    return Estimate(value, scale * math.exp(lo), scale * math.exp(hi))


def ratio_beside_compute(
    base: Mapping[str, Array], other: Mapping[str, Array], *, disturbed: tuple[float, float]
) -> Estimate:
    """Speed of `other` over `base` if forward, backward and exchange took equally long in both: only input, optimizer and gaps count.

    Runs of the same job differ most in compute time, which can hide a clear change elsewhere. `disturbed` is the standard deviation of the
    slowdown of each run by other programs on the machine, as a share. If either is above 0, input is left out.
    """
    names = _BETWEEN if any(disturbed) else (*_INPUT, *_BETWEEN)
    own = [sum((run[name] for name in names if name in run), np.zeros(_BOOTSTRAP_DRAWS)) for run in (base, other)]
    widths = [(_BESIDE_OWN + share) * float(took.mean()) for took, share in zip(own, disturbed, strict=True)]
    widths += [_BESIDE_STEP * float(run["step"].mean()) for run in (base, other)]
    noise = np.random.default_rng(_BOOTSTRAP_SEED).normal(0.0, math.hypot(*widths), _BOOTSTRAP_DRAWS)
    more = own[1] - own[0]
    lo, hi = np.percentile(_slowed(base["step"], more + noise), _ends())
    return Estimate(float(np.mean(_slowed(base["step"], more))), float(lo), float(hi))


def _slowed(step_s: Array, more_s: Array) -> Array:
    return np.asarray(step_s / np.maximum(step_s + more_s, 0.1 * step_s))


def _less(step_s: Array, spared_s: float) -> Array:
    return np.maximum(step_s - spared_s, 0.1 * step_s)


def phase_delta(base: Array, other: Array, *, between_runs: tuple[float, float]) -> Estimate:
    """Seconds per step by which a phase of `other` is longer. The spread between runs is taken as a share of the phase's own length."""
    width = math.hypot(between_runs[0] * float(base.mean()), between_runs[1] * float(other.mean()))
    noise = np.random.default_rng(_BOOTSTRAP_SEED).normal(0.0, 1.0, _BOOTSTRAP_DRAWS) * width
    lo, hi = np.percentile(other - base + noise, _ends())
    return Estimate(float(other.mean() - base.mean()), float(lo), float(hi))


def _ends() -> tuple[float, float]:
    rest = 100.0 * (1.0 - CONFIDENCE) / 2.0
    return rest, 100.0 - rest
