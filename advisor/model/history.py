"""The run over time, in a bounded number of equal slices: phases of the step, each rank's steps and lateness, each GPU's readings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TypeAlias

Curve: TypeAlias = tuple[float | None, ...]  # a value for each slice; None: nothing is known of it. Empty: not measured

GPU_READINGS = ("util_pct", "sm_clock_mhz", "temp_c", "mem_used_bytes")
# A rank or GPU is apart from the others if it differs from their median in at least this share of the slices.
_APART_SHARE = 0.1
STEP_RATIO = 1.1
LATE_SHARE = 0.05  # of the median step; as much as CLEAR_MARGIN would be noise in the mean of a slice with few steps
GPU_MARGINS = {"util_pct": 15.0, "sm_clock_mhz": 100.0, "temp_c": 10.0, "mem_used_bytes": 2.0**31}


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """Means of a GPU's readings in each slice, in the unit of their names."""

    index: int
    util_pct: Curve = ()
    sm_clock_mhz: Curve = ()
    temp_c: Curve = ()
    mem_used_bytes: Curve = ()


@dataclass(frozen=True, slots=True)
class History:
    """`phases`: mean seconds per step over all ranks, by phase; `step_s` and `late_s`: seconds per step, by rank.

    `late_s` is how much later than the middle rank (of two: than the other) a rank comes to the collectives of a step. `steps` is the
    number of steps of each rank in each slice; a step that spans several slices counts in each in proportion.
    """

    start_s: float  # since the job's start
    slice_s: float
    phases: Mapping[str, Curve] = field(default_factory=dict)
    steps: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    step_s: Mapping[int, Curve] = field(default_factory=dict)
    late_s: Mapping[int, Curve] = field(default_factory=dict)
    gpus: tuple[GpuHistory, ...] = ()
    # those that differ from the others over the run, the most different first; and the median step of all ranks' slices
    ranks_apart: tuple[int, ...] = ()
    gpus_apart: tuple[int, ...] = ()
    usual_step_s: float | None = None

    @property
    def slices(self) -> int:
        return max((len(counts) for counts in self.steps.values()), default=0)

    @property
    def end_s(self) -> float:
        return self.start_s + self.slices * self.slice_s


def compared(history: History) -> History:
    """Adds what a comparison of its ranks and GPUs shows; once per report, not per drawing."""
    known = [value for curve in history.step_s.values() for value in curve if value is not None]
    usual = replace(history, usual_step_s=median(known) if known else None)
    return replace(usual, ranks_apart=_ranks_apart(usual), gpus_apart=_gpus_apart(usual))


def _ranks_apart(history: History) -> tuple[int, ...]:
    """Ranks whose steps are longer, or that come later, than those of the middle rank in a tenth of the slices; the most often so first."""
    usual_s = history.usual_step_s
    if usual_s is None or len(history.step_s) < 2:
        return ()
    often: dict[int, float] = {}
    middle = _middle(list(history.step_s.values()))
    for rank, curve in history.step_s.items():
        slow = [v > STEP_RATIO * m for v, m in zip(curve, middle, strict=True) if v is not None and m is not None]
        late = [value > LATE_SHARE * usual_s for value in history.late_s.get(rank, ()) if value is not None]
        often[rank] = max(_share(slow), _share(late))
    return tuple(sorted((r for r, share in often.items() if share >= _APART_SHARE), key=lambda r: (-often[r], r)))


def _gpus_apart(history: History) -> tuple[int, ...]:
    """GPUs with a reading that differs from the middle GPU's in a tenth of the slices; the most often so first."""
    often = dict.fromkeys((gpu.index for gpu in history.gpus), 0.0)
    for name, margin in GPU_MARGINS.items():
        curves = {gpu.index: getattr(gpu, name) for gpu in history.gpus if getattr(gpu, name)}
        middle = _middle(list(curves.values()))
        for index, curve in curves.items() if len(curves) > 2 else ():
            off = [abs(v - m) > margin for v, m in zip(curve, middle, strict=True) if v is not None and m is not None]
            often[index] = max(often[index], _share(off))
    return tuple(sorted((i for i, share in often.items() if share >= _APART_SHARE), key=lambda i: (-often[i], i)))


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean of the known values of each slice."""
    measured = [curve for curve in curves if curve]
    if len(measured) == 1:
        return measured[0]
    found: list[float | None] = []
    for values in zip(*measured, strict=True):
        known = [value for value in values if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return tuple(found)


def _middle(curves: Sequence[Curve]) -> Curve:
    known = ([value for value in values if value is not None] for values in zip(*curves, strict=True))
    return tuple(median(values) if values else None for values in known)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def resampled(curve: Curve, width: int, weights: Sequence[float] = ()) -> Curve:
    """At most `width` values, each the mean of as many known neighbours, weighted where there are weights."""
    if width <= 0 or len(curve) <= width:
        return curve[: max(width, 0)]
    edges = pairwise([i * len(curve) // width for i in range(width + 1)])
    if not weights:
        # Most parts are one or two values, and a refresh of the screen makes thousands of them.
        return tuple(curve[a] if b - a == 1 else _plain_mean(curve[a:b]) for a, b in edges)
    return tuple(_mean(curve[a:b], weights[a:b]) for a, b in edges)


def _plain_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(value * weight for value, weight in known) / total if total > 0 else None
