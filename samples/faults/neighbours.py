"""CPU use by others while a job ran, read from the kernel, because the advisor's own claim about it is under test."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_BUSY, _STOLEN = (0, 1, 2, 5, 6), 7  # user, nice, system, irq, softirq; steal


@dataclass(frozen=True, slots=True)
class Ticks:
    """Sums since boot, over the cores that this process may use; `own_s`: this process and its children that ended."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float
    cores: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    cores: float = 0.0  # average number of cores busy with other processes, including a fault's own neighbours
    stolen_share: float = 0.0  # share of all cores' time stolen by the hypervisor


NOBODY = Neighbours()


def read_ticks(stat: Path = _STAT) -> Ticks:
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [line.split() for line in stat.read_text().splitlines()]
    allowed_rows = [[int(word) for word in row[1:]] for row in rows if row[0] in allowed]
    hertz = os.sysconf("SC_CLK_TCK")
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Ticks(
        time.monotonic(),
        sum(row[column] for row in allowed_rows for column in _BUSY) / hertz,
        sum(row[_STOLEN] for row in allowed_rows) / hertz,
        sum(usage.ru_utime + usage.ru_stime for usage in usages),
        len(allowed_rows),
    )


def between(before: Ticks, after: Ticks) -> Neighbours:
    """CPU use by others between two readings. The job's processes must have ended and been waited for."""
    wall_s = max(after.at_s - before.at_s, 1e-3)
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    stolen_s = after.stolen_s - before.stolen_s
    return Neighbours(max(0.0, others_s) / wall_s, stolen_s / wall_s / max(after.cores, 1))
