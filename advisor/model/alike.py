"""Which ranks and GPUs differ so little that one row can stand for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from rn50_advisor.advisor.model.history import GPU_MARGINS, STEP_RATIO
from rn50_advisor.advisor.model.report import GpuStrip, RankStrip

ALIKE = -1  # the number of a row that stands for several ranks or GPUs
_PHASE_FOR_S = 2.0  # a rank that stays in one phase this much longer than most may be stuck
_STEPS_BEHIND = 2
_LATE_SHARE = 0.5
_READINGS = ("util_pct", "temp_c", "sm_clock_mhz")


def alike_ranks(strips: Sequence[RankStrip], apart: Collection[int]) -> list[RankStrip]:
    """Ranks like most: alive, with usual steps, not often late, and not in `apart`. Empty if they are fewer than two."""
    alive = [strip for strip in strips if strip.alive]
    if len(alive) < 2:
        return []
    known = [strip.step_s for strip in alive if strip.step_s is not None]
    usual_s, step = median(known) if known else None, median(strip.step for strip in alive)
    waiting_s = median(strip.phase_for_s for strip in alive)
    found = [
        strip
        for strip in alive
        if strip.rank not in apart
        and (strip.late_share or 0.0) < _LATE_SHARE
        and (strip.step_s is None) == (usual_s is None)
        and (strip.step_s is None or usual_s is None or strip.step_s <= STEP_RATIO * usual_s)
        and strip.phase_for_s <= waiting_s + _PHASE_FOR_S
        and abs(strip.step - step) <= _STEPS_BEHIND
    ]
    return found if len(found) > 1 else []


def one_rank(strips: Sequence[RankStrip]) -> RankStrip:
    """A row for alike ranks: the phase that most are in, and the middle of their numbers."""
    known = [strip.step_s for strip in strips if strip.step_s is not None]
    late = [strip.late_share for strip in strips if strip.late_share is not None]
    hosts = {strip.host for strip in strips}
    return RankStrip(
        rank=ALIKE,
        pid=0,
        alive=True,
        phase=Counter(strip.phase for strip in strips).most_common(1)[0][0],
        phase_for_s=median(strip.phase_for_s for strip in strips),
        step=round(median(strip.step for strip in strips)),
        step_s=median(known) if known else None,
        late_share=fmean(late) if late else None,
        host=hosts.pop() if len(hosts) == 1 else f"{len(hosts)} hosts",
    )


def alike_gpus(strips: Sequence[GpuStrip], apart: Collection[int]) -> list[GpuStrip]:
    """GPUs like most of one host and model: without trouble, and not in `apart`. Empty if they are fewer than two."""
    if len(strips) < 2 or len({(strip.host, strip.name, strip.instances) for strip in strips}) > 1:
        return []
    usual = {name: _median(strips, name) for name in _READINGS}

    def is_usual(strip: GpuStrip, name: str) -> bool:
        value, middle = getattr(strip, name), usual[name]
        return bool((value is None) == (middle is None) and (value is None or abs(value - middle) <= GPU_MARGINS[name]))

    found = [s for s in strips if s.index not in apart and not s.trouble and all(is_usual(s, name) for name in usual)]
    return found if len(found) > 1 else []


def one_gpu(strips: Sequence[GpuStrip]) -> GpuStrip:
    """A row for alike GPUs: the median of each reading."""
    names = ("util_pct", "mem_used_bytes", "power_w", "sm_clock_mhz", "temp_c", "sm_active_pct", "tensor_active_pct")
    middle: dict[str, Any] = {name: _median(strips, name) for name in names}
    return replace(strips[0], index=ALIKE, ranks="", place="", **middle)


def _median(strips: Sequence[GpuStrip], name: str) -> float | None:
    known = [value for strip in strips if (value := getattr(strip, name)) is not None]
    return median(known) if known else None
