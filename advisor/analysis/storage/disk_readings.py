"""Measures the activity of the training data's disk during the steps, and its spread from second to second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.analysis.storage.process_io import grown, growth
from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure
from rn50_advisor.advisor.model.measures.measured import Reasons
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_BUSY_SHARE,
    STORAGE_INSTANCE_EXCEEDED_SHARE,
    STORAGE_JOB_SHARE,
    STORAGE_LIMIT_MB_S,
    STORAGE_LIMIT_READS_S,
    STORAGE_MB_SPREAD,
    STORAGE_QUEUE,
    STORAGE_READ_MB_S,
    STORAGE_READ_S,
    STORAGE_READS_S,
    STORAGE_READS_SPREAD,
    STORAGE_REQUEST_KB,
    STORAGE_SECONDS,
    STORAGE_USUAL_MB_S,
    STORAGE_USUAL_READS_S,
    STORAGE_VOLUME_EXCEEDED_SHARE,
)

Array = NDArray[np.float64]
OfJob = dict[JobMeasure, float]

_USUAL, _SECONDS = 3, 6  # readings needed for a median and for a spread; with fewer, both are chance
_MB = 1e6


def disk_readings(window: Window, disk: str, missing: Reasons) -> OfJob:
    scope = f"disk:{disk}"
    names = {
        STORAGE_READ_MB_S: ("disk.read_bytes", 1 / _MB),
        STORAGE_READS_S: ("disk.reads", 1.0),
        STORAGE_BUSY_SHARE: ("disk.busy_s", 1.0),
        STORAGE_QUEUE: ("disk.queue_s", 1.0),
        STORAGE_VOLUME_EXCEEDED_SHARE: ("disk.volume_exceeded_s", 1.0),
        STORAGE_INSTANCE_EXCEEDED_SHARE: ("disk.instance_exceeded_s", 1.0),
    }
    rates = {name: (window.rate(metric, scope), factor) for name, (metric, factor) in names.items()}
    found = {name: rate * factor for name, (rate, factor) in rates.items() if rate is not None}
    if STORAGE_READ_MB_S not in found:
        missing[STORAGE_READ_MB_S, JOB] = f"/proc/diskstats does not list {disk}"
        return found
    waited, reads = window.growth("disk.read_wait_s", scope), window.growth("disk.reads", scope)
    found.update(requests(found, waited, reads))
    for measure, metric, factor in (
        (STORAGE_LIMIT_MB_S, "limit_read_bytes_s", 1 / _MB),
        (STORAGE_LIMIT_READS_S, "limit_reads_s", 1.0),
    ):
        most = window.level(f"disk.{metric}", scope)
        if most is not None:
            found[measure] = most * factor
    found.update(_job_share(window, scope))
    found.update(_seconds(window, scope))
    return found


def _job_share(window: Window, scope: str) -> OfJob:
    """The job's share of the bytes that the disk read and wrote."""
    all_of_it, own = 0.0, 0.0
    for kind in ("read", "write"):
        series = window.recording.samples.get((f"disk.{kind}_bytes", scope))
        if series is not None and series.value.size:
            all_of_it += growth(series, None, window.start_ns, window.end_ns)
        processes, metric = window.recording.processes, f"proc.{kind}_bytes"
        caused = grown(window.recording, processes, metric, window.start_ns, window.end_ns)
        if caused is None:
            return {}
        own += caused
    return {STORAGE_JOB_SHARE: min(1.0, own / all_of_it)} if all_of_it > 0 else {}


def requests(found: OfJob, waited_s: float | None, reads: float | None) -> OfJob:
    """KB and seconds per read, if there were any."""
    more: OfJob = {}
    if found.get(STORAGE_READS_S):
        more[STORAGE_REQUEST_KB] = 1e3 * found[STORAGE_READ_MB_S] / found[STORAGE_READS_S]
    if waited_s is not None and reads:
        more[STORAGE_READ_S] = waited_s / reads
    return more


def _seconds(window: Window, scope: str) -> OfJob:
    """The median rate per second and its spread. Under a limit, all seconds have the same rate."""
    rates = {
        name: _rates(window, metric, scope) for name, metric in (("mb", "disk.read_bytes"), ("reads", "disk.reads"))
    }
    size = min(values.size for values in rates.values())
    if size < _USUAL:
        return {}
    middle = {name: float(np.median(values)) for name, values in rates.items()}
    found: OfJob = {
        STORAGE_SECONDS: float(size),
        STORAGE_USUAL_MB_S: middle["mb"] / _MB,
        STORAGE_USUAL_READS_S: middle["reads"],
    }
    if size >= _SECONDS and min(middle.values()) > 0:
        for name, measure in (("mb", STORAGE_MB_SPREAD), ("reads", STORAGE_READS_SPREAD)):
            # upwards only: under a limit, a second may have less if little is requested, but none has more
            found[measure] = float(np.percentile(rates[name], 90) - middle[name]) / middle[name]
    return found


def _rates(window: Window, metric: str, scope: str) -> Array:
    """Growth per second between readings that lie within the window."""
    series = window.recording.samples.get((metric, scope))
    if series is None:
        return np.empty(0)
    inside = (series.t_ns >= window.start_ns) & (series.t_ns <= window.end_ns)
    seconds = np.diff(series.t_ns[inside]) / 1e9
    return np.asarray(np.diff(series.value[inside])[seconds > 0] / seconds[seconds > 0])
