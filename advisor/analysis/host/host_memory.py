"""Measures the memory of ranks and workers over the run, and the memory that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts, MemoryTrend, training_loader
from rn50_advisor.advisor.model.measures.host_measures import (
    MEMORY_COPIED_MB,
    MEMORY_HEADROOM_MB,
    MEMORY_HOST_LEFT_SHARE,
    MEMORY_LIMIT_MB,
    MEMORY_LIMIT_USED_SHARE,
    MEMORY_PRESSURE_SHARE,
    MEMORY_SWAP_IN_MB_PER_S,
    MEMORY_WATCHED_S,
    MEMORY_WORKER_MB,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Process, Recording, Series

# Allocators, caches and the page tables of forked workers fill at first. Memory that still grows after this share of the time does not
# settle.
_WARM_UP_SHARE = 0.25
_READINGS_MIN = 6  # two for each third
_READINGS_OF_COPIES = 4  # fewer, as private memory is read every ten seconds or less often and hardly falls
_LAST_NS = 2_000_000_000  # workers end with their loader, a little before the rank's last step ends
_SLOPE_READINGS_MAX = 150  # readings used for slopes: 11,000 pairs
_MB = 1e6
# Private memory of a worker that copied nothing: 11 to 27 MB.
_OWN_BYTES = 25e6


def memory_trends(
    recording: Recording, steps: Mapping[int, RankSteps], loaders: Sequence[LoaderFacts] = ()
) -> tuple[MemoryTrend, ...]:
    """Memory trends: one per rank, one for its workers together, and one for the pages that all workers copy. Excludes ended workers."""
    found, copying = [], []
    ranks = len(steps)
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        if rank not in steps:
            continue
        own = steps[rank]
        begin_ns, end_ns = int(own.start_ns[0]), int(own.end_ns[-1])  # a rank frees its memory after its last step
        loader = training_loader(loaders, rank)
        first = (
            first_pass(own, loader, begin_ns, ranks=ranks) if loader is not None and not loader.num_workers else None
        )
        found.append(_trend(recording, [process], "proc.held_bytes", (begin_ns, end_ns), own, filling=first))
        workers = [p for p in recording.processes if p.role == "worker" and p.rank == rank]
        alive = [p for p in workers if p.ended_ns is None or p.ended_ns >= end_ns - _LAST_NS]
        if alive:
            begin_ns = max(begin_ns, *(p.first_seen_ns for p in alive))
            first = first_pass(own, loader, begin_ns, ranks=ranks)
            found.append(_trend(recording, alive, "proc.held_bytes", (begin_ns, end_ns), own, filling=first))
            copying += alive
    followed = next((p for p in copying if ("proc.private_bytes", f"pid:{p.pid}") in recording.samples), None)
    if followed is not None:
        own = steps[followed.rank or 0]
        begin_ns = max(int(own.start_ns[0]), followed.first_seen_ns)
        first = first_pass(own, training_loader(loaders, own.rank), begin_ns, ranks=ranks)
        found.append(
            _trend(recording, copying, "proc.private_bytes", (begin_ns, int(own.end_ns[-1])), own, filling=first)
        )
    return tuple(trend for trend in found if trend is not None)


def memory_values(recording: Recording, steps: Mapping[int, RankSteps], trends: Iterable[MemoryTrend]) -> Measured:
    """Measures of the job: seconds that its memory was watched, MB left, and the MB of its largest worker."""
    found = Measured()
    watched = max((trend.seconds for trend in trends), default=None)
    if watched is not None:
        found[MEMORY_WATCHED_S, JOB] = watched
    headroom = _headroom_bytes(recording, steps) if steps else None
    if headroom is not None:
        found[MEMORY_HEADROOM_MB, JOB] = headroom / _MB
    private = [
        float(series.value.max())
        for p in recording.processes
        if p.role == "worker" and (series := recording.samples.get(("proc.private_bytes", f"pid:{p.pid}"))) is not None
    ]
    if private:
        found[MEMORY_WORKER_MB, JOB] = max(private) / _MB
    copied = _copied_bytes(recording, steps) if steps else None
    if copied is not None:
        found[MEMORY_COPIED_MB, JOB] = copied / _MB
    return found


def _copied_bytes(recording: Recording, steps: Mapping[int, RankSteps]) -> float | None:
    """What the workers alive at the end have copied: private memory that they did not allocate; of all, from those that were followed."""
    end_ns = max(int(own.end_ns[-1]) for own in steps.values())
    workers = [p for p in recording.processes if p.role == "worker" and p.rank in steps]
    alive = [p for p in workers if p.ended_ns is None or p.ended_ns >= end_ns - _LAST_NS]
    copied = []
    for process in alive:
        held = _between(recording.samples.get(("proc.held_bytes", f"pid:{process.pid}")), 0, end_ns)
        private = _last(recording, "proc.private_bytes", f"pid:{process.pid}", end_ns)
        if private is not None and held is not None and held.value.size:
            # inherited pages count as held from the start
            allocated = max(0.0, float(held.value[-1] - held.value[0]))
            copied.append(max(0.0, private - allocated - _OWN_BYTES))
    return len(alive) * sum(copied) / len(copied) if copied else None


def _trend(
    recording: Recording,
    processes: list[Process],
    metric: str,
    span_ns: tuple[int, int],
    steps: RankSteps,
    *,
    filling: FirstPass | None,
) -> MemoryTrend | None:
    """Joint memory trend of these processes, scaled up from those that were sampled; None with too few readings."""
    begin_ns, end_ns = span_ns
    begin_ns += round(_WARM_UP_SHARE * max(0, end_ns - begin_ns))
    if filling is not None and filling.ended_ns is not None:
        begin_ns = max(begin_ns, filling.ended_ns)
    followed = [_between(recording.samples.get((metric, f"pid:{p.pid}")), begin_ns, end_ns) for p in processes]
    copied = metric == "proc.private_bytes"
    enough = _READINGS_OF_COPIES if copied else _READINGS_MIN
    seen = [series for series in followed if series is not None and series.t_ns.size >= enough]
    if not seen:
        return None
    scale = len(processes) / len(seen)  # all workers do the same; copied memory is measured on one of them
    thirds = [
        scale / _MB * sum(float(np.median(part)) for part in parts)
        for parts in zip(*(np.array_split(s.value, 3) for s in seen), strict=True)
    ]
    first, last = min(int(s.t_ns[0]) for s in seen), max(int(s.t_ns[-1]) for s in seen)
    mb_per_s = sum(slope(s) for s in seen) * scale / _MB
    bounds = [_left_to_copy(recording, processes, end_ns) if copied else None]
    if filling is not None and filling.left_s is not None:
        bounds.append(max(0.0, mb_per_s * filling.left_s))
    return MemoryTrend(
        rank=steps.rank,
        role="rank" if processes[0].role == "rank" else "worker",
        processes=len(processes),
        copied=copied,
        seconds=(last - first) / 1e9,
        steps=float(steps.count[(steps.start_ns >= first) & (steps.start_ns <= last)].sum()),
        thirds_mb=(thirds[0], thirds[1], thirds[2]),
        mb_per_s=mb_per_s,
        left_mb=min((left for left in bounds if left is not None), default=None),
    )


def _headroom_bytes(recording: Recording, steps: Mapping[int, RankSteps]) -> float | None:
    """Bytes free at the end of the last step. Afterwards the processes free their memory."""
    end_ns = max(int(s.end_ns[-1]) for s in steps.values())
    left = [_last(recording, "mem.available_bytes", "host", end_ns)]
    for process in process_by_rank(recording.processes).values():
        scope = f"pid:{process.pid}"
        limit = _last(recording, "cgroup.mem_limit_bytes", scope, end_ns)
        used = _last(recording, "cgroup.mem_used_bytes", scope, end_ns)
        if limit is not None and used is not None:
            cache = _last(recording, "cgroup.mem_cache_bytes", scope, end_ns) or 0.0
            left.append(max(0.0, limit - used + cache))
    return min((value for value in left if value is not None), default=None)


def slope(series: Series) -> float:
    """Median slope per second over all pairs of readings (Theil and Sen). A jump or a few outliers do not change it."""
    pick = np.linspace(0, series.t_ns.size - 1, min(series.t_ns.size, _SLOPE_READINGS_MAX)).astype(np.int64)
    t_s, value = (series.t_ns[pick] - series.t_ns[0]) / 1e9, series.value[pick]
    a, b = np.triu_indices(pick.size, 1)
    later = t_s[b] > t_s[a]
    return float(np.median((value[b] - value[a])[later] / (t_s[b] - t_s[a])[later])) if later.any() else 0.0


def _left_to_copy(recording: Recording, workers: Iterable[Process], end_ns: int) -> float | None:
    """MB that the workers can still copy: a worker can copy no more than it inherited."""
    left, workers = [], list(workers)
    for process in workers:
        held = _last(recording, "proc.held_bytes", f"pid:{process.pid}", end_ns)
        private = _last(recording, "proc.private_bytes", f"pid:{process.pid}", end_ns)
        if held is not None and private is not None:
            left.append(max(0.0, held - private))
    return sum(left) * len(workers) / len(left) / _MB if left else None


def _between(series: Series | None, begin_ns: int, end_ns: int) -> Series | None:
    if series is None:
        return None
    inside = (series.t_ns >= begin_ns) & (series.t_ns <= end_ns)
    return Series(series.t_ns[inside], series.value[inside])


def _last(recording: Recording, metric: str, scope: str, end_ns: int) -> float | None:
    series = _between(recording.samples.get((metric, scope)), 0, end_ns)
    return float(series.value[-1]) if series is not None and series.value.size else None


# A process's first pass over the data. A dataset that caches what it has read grows during this pass and not after it.
@dataclass(frozen=True, slots=True)
class FirstPass:
    """The first pass over the data. Exactly one field is known: when it ended, or how long it will still take."""

    ended_ns: int | None
    left_s: float | None


def first_pass(steps: RankSteps, loader: LoaderFacts | None, since_ns: int, *, ranks: int) -> FirstPass | None:
    """The first pass over the dataset since `since_ns`. None if its end is not seen and cannot be predicted, as for a stream."""
    later = steps.start_ns[steps.epoch_start & (steps.start_ns > since_ns)]
    if later.size:
        return FirstPass(int(later[0]), None)
    length = None if loader is None else loader.dataset.get("length")
    rows = steps.start_ns >= (steps.start_ns[steps.epoch_start][-1] if steps.epoch_start.any() else since_ns)
    samples, took_s = float(steps.columns["samples"][rows].sum()), float(steps.length[rows].sum())
    if length is None or not 0 < samples < length:
        return None
    # each rank usually reads its share; a rank that has read more than that reads all
    ends = length / ranks if samples < length / ranks else length
    return FirstPass(None, took_s * (ends - samples) / samples)


# Memory shortage during the steps: stalls, pages read back from swap, and the share of each rank's limit in use.
def shortage_values(window: Window) -> Measured:
    """Memory shortage measures. Those that were not sampled are absent, and so is the limit share of a rank without a limit."""
    found = Measured()
    pressure, swapped = window.rate("psi.mem_some_s", "host"), window.rate("mem.swap_in_bytes", "host")
    total, left = window.level("mem.total_bytes", "host"), window.level("mem.available_bytes", "host")
    if pressure is not None:
        found[MEMORY_PRESSURE_SHARE, JOB] = min(1.0, pressure)
    if swapped is not None:
        found[MEMORY_SWAP_IN_MB_PER_S, JOB] = swapped / _MB
    if total and left is not None:
        found[MEMORY_HOST_LEFT_SHARE, JOB] = left / total
    for rank, process in process_by_rank(window.recording.processes).items():
        held = _held(window, f"pid:{process.pid}")
        if held is not None:
            found[MEMORY_LIMIT_USED_SHARE, rank], found[MEMORY_LIMIT_MB, rank] = held
    return found


def _held(window: Window, scope: str) -> tuple[float, float] | None:
    """(used share of the limit without page cache, the limit in MB). The share is the 90th percentile of the readings."""
    limit = window.level("cgroup.mem_limit_bytes", scope)
    used, cache = (_inside(window, f"cgroup.mem_{name}_bytes", scope) for name in ("used", "cache"))
    if not limit or used is None or cache is None or used.t_ns.size != cache.t_ns.size:
        return None
    return float(np.percentile(used.value - cache.value, 90)) / limit, limit / _MB


def _inside(window: Window, metric: str, scope: str) -> Series | None:
    series = window.recording.samples.get((metric, scope))
    if series is None:
        return None
    inside = (series.t_ns >= window.start_ns) & (series.t_ns <= window.end_ns)
    return Series(series.t_ns[inside], series.value[inside]) if inside.any() else None
