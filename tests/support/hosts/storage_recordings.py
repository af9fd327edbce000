"""Recordings of jobs that read from a disk or a network mount. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recordings import (
    FIRST_STEP_NS,
    plan,
    rank_process,
    recording,
    series,
    steady_counter,
)
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Process, Series

Samples = dict[tuple[str, str], Series]
LONG = {0: plan(100)}  # ten seconds of steps of 100 ms
WORKER = rank_process(0, pid=200, role="worker", worker=0)
DISK = {
    "mount_point": "/data",
    "fs_type": "ext4",
    "device": "/dev/dm-0",
    "network": False,
    "disk": "dm-0",
    "below": ["sda"],
}
NFS = {"mount_point": "/data", "fs_type": "nfs4", "device": "server:/x", "network": True, "disk": None}


def mounted(*mounts: dict[str, Any]) -> tuple[Event, ...]:
    return tuple(Event(FIRST_STEP_NS, "data_mount", None, None, mount) for mount in mounts)


def job(
    samples: Samples, *mounts: dict[str, Any], plans: Any = None, workers: tuple[Process, ...] = (WORKER,)
) -> Analysis:
    seen = {("data.files", f"mount:{mount['mount_point']}"): series((0, 9)) for mount in mounts}
    made = recording(plans or LONG, samples={**seen, **samples}, events=mounted(*mounts))
    return analyse(replace(made, processes=(*made.processes, *workers)))


def disk(mb_s: float = 50, reads_s: float = 400, busy: float = 0.5, queue: float = 1.5, wait: float = 0.8) -> Samples:
    rates = {"read_bytes": mb_s * 1e6, "reads": reads_s, "busy_s": busy, "queue_s": queue, "read_wait_s": wait}
    rates["write_bytes"] = 0.0
    return {(f"disk.{name}", "disk:dm-0"): steady_counter(rate) for name, rate in rates.items()}


def io(asked_mb_s: float, read_mb_s: float, pid: int = 200) -> Samples:
    rates = {"rchar_bytes": asked_mb_s, "read_bytes": read_mb_s, "write_bytes": 0.0}
    return {(f"proc.{name}", f"pid:{pid}"): steady_counter(rate * 1e6) for name, rate in rates.items()}
