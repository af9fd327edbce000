"""Decides whether workers or cores are short: this separates DAT004 from DAT001 for jobs that wait for computing workers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.forecast.worker_model import LOCK_TAKEN
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES
from rn50_advisor.advisor.model.measures.input_measures import LOADER_BUSY_SHARE, LOADER_LOCK_SHARE, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import core_share, idle_cores, mean, spare_cores
from rn50_advisor.rules.rule import Threshold, Thresholds

# Gain below which more workers are not advised: images of 28 pixels on two cores went 1.2 times slower with one.
GAIN_RATIO_MIN = 1.02
WORKER_THRESHOLDS: Mapping[str, Threshold] = {
    "busy": Threshold(0.85, "of the time: workers that are idle more often than that are not the limit"),
    "spare_cores": Threshold(
        0.5, "half a core is enough for another worker that computes all the time; below it the forecast decides"
    ),
    "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
    "gain": Threshold(
        1.10,
        "times as fast at worst: the forecast was 0.95 to 1.05 on full cores, 1.18 and more with one worker too few",
    ),
}


def cores_idle(a: Analysis, t: Thresholds) -> bool:
    """True if one more worker that always computes fits the idle cores; on larger hosts a share of the allowed cores must be idle."""
    return idle_cores(a) >= _idle_cores_min(a, t)


def workers_missing(a: Analysis, t: Thresholds) -> bool:
    """True if the present workers are always busy and there are cores for more.

    Idle cores count (`cores_idle`). Fewer are enough if they exceed the gaps of a saturated host and the forecast shortens the step
    by `gain` even at worst, in which neighbours keep their cores and the whole job queues for the rest.
    """
    if (a.get(LOADER_LOCK_SHARE) or 0.0) >= LOCK_TAKEN:
        return False  # they wait for one another (DAT013)
    present, busy = a.by_rank(LOADER_WORKERS), a.by_rank(LOADER_BUSY_SHARE)
    if not busy or mean(busy) < t["busy"] or min(present.values()) < 1:
        return False
    idle = idle_cores(a) / core_share(a)
    if idle >= _idle_cores_min(a, t):
        return True
    if a.forecast is None or idle < t["spare_share"] * a.value(CPU_ALLOWED_CORES):
        return False
    _, worst_s = a.forecast.step_s(workers_on_idle_cores(a, int(max(present.values()))))
    return a.value(STEP_TIME_S) >= t["gain"] * worst_s


def workers_on_idle_cores(a: Analysis, present: int) -> int:
    """Workers per rank that would use the idle cores, given `present` workers; at least one more."""
    return present + max(1, math.floor(idle_cores(a) / a.ranks_of_host / core_share(a)))


def _idle_cores_min(a: Analysis, t: Thresholds) -> float:
    return spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
