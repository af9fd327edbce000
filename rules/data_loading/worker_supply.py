"""Where workers are missing and where cores are: DAT004 and DAT001 divide jobs that wait for computing workers between them here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.forecast.worker_model import LOCK_TAKEN
from rn50_advisor.rules.analysis_reading import core_share, idle_cores, mean, spare_cores
from rn50_advisor.rules.rule import Threshold, Thresholds

# What more workers gain at best where they are no advice: pictures of 28 pixels on two cores went 1.2 times slower with one.
HARDLY = 1.02
STAFFED: Mapping[str, Threshold] = {
    "busy": Threshold(0.85, "a worker that waits for indices more than this is not the limit"),
    "spare_cores": Threshold(
        0.5, "half a core carries another worker that computes all the time; of less the forecast tells"
    ),
    "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
    "gain": Threshold(
        1.10, "times as fast at worst: on full cores 0.95 to 1.05 were foreseen, with one worker too few 1.18 and more"
    ),
}


def cores_idle(a: Analysis, t: Thresholds) -> bool:
    """Whether as much idles as a worker that always computes must find; on larger hosts a share of the allowed cores."""
    return idle_cores(a) >= _line(a, t)


def workers_missing(a: Analysis, t: Thresholds) -> bool:
    """Whether those there are have no rest, and more of them would find cores.

    They do where enough idles. On few cores they do also where less idles, if it is more than the gaps of a full host and the forecast
    makes the step so much shorter even at worst: neighbours keep the cores they have, and all of the job stands in line for the rest.
    """
    if (a.get("loader.lock_share") or 0.0) >= LOCK_TAKEN:
        return False  # they wait for one another (DAT013)
    present, busy = a.by_rank("loader.workers"), a.by_rank("loader.busy_share")
    if not busy or mean(busy) < t["busy"] or min(present.values()) < 1:
        return False
    idle = idle_cores(a) / core_share(a)
    if idle >= _line(a, t):
        return True
    if a.forecast is None or idle < t["spare_share"] * a.value("cpu.allowed_cores"):
        return False
    _, worst_s = a.forecast.step_s(room_on_idle_cores(a, int(max(present.values()))))
    return a.value("step.time_s") >= t["gain"] * worst_s


def room_on_idle_cores(a: Analysis, present: int) -> int:
    """Workers per rank, with so many present, that would keep busy what idles now; at least one more."""
    return present + max(1, math.floor(idle_cores(a) / a.ranks_of_host / core_share(a)))


def _line(a: Analysis, t: Thresholds) -> float:
    return spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
