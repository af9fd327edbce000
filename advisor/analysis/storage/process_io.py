"""Bytes that the job's processes requested, read and wrote between two moments, from the kernel's counters, sampled each second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Process, Recording, Series


def readers_of(recording: Recording, everything: Mapping[int, RankSteps]) -> tuple[Process, ...]:
    """The processes that make batches: each rank's workers, or the rank itself if it has none."""
    ranks = process_by_rank(recording.processes)
    found = [p for p in recording.processes if p.role == "worker" and p.rank in everything]
    served = {p.rank for p in found}
    return (*found, *(ranks[rank] for rank in everything if rank in ranks and rank not in served))


def grown(recording: Recording, processes: Sequence[Process], metric: str, start_ns: int, end_ns: int) -> float | None:
    """Total growth of a counter over these processes. A worker's counter starts at 0 when the worker is first seen.

    None without readings, or if the run no longer lists all processes that ended in that time.
    """
    if (recording.meta.left_out_until_ns or start_ns) > start_ns:
        return None
    grown = []
    for process in processes:
        series = recording.samples.get((metric, f"pid:{process.pid}"))
        if series is not None and series.value.size:
            grown.append(growth(series, process.first_seen_ns if process.role == "worker" else None, start_ns, end_ns))
    return sum(grown) if grown else None


def growth(series: Series, born_ns: int | None, start_ns: int, end_ns: int) -> float:
    """Growth of a counter between two moments, interpolated linearly between readings."""
    total = np.concatenate([[0.0], np.cumsum(np.clip(np.diff(series.value), 0.0, None))])
    times = series.t_ns.astype(np.float64)
    if born_ns is not None and born_ns < times[0]:
        times = np.concatenate([[float(born_ns)], times])
        total = np.concatenate([[0.0], total + series.value[0]])
    began, ended = np.interp([float(start_ns), float(end_ns)], times, total)
    return float(ended - began)
