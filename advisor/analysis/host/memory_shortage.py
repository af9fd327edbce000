"""Whether memory was short while the steps ran: stalls for it, pages read back from swap, and how near each rank's limit was."""

from __future__ import annotations

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.recording import Series

_MB = 1e6


def shortage_values(window: Window) -> dict[tuple[str, str], float]:
    """What was not sampled is absent; a rank without a limit has no share of it."""
    found: dict[tuple[str, str], float] = {}
    pressure, swapped = window.rate("psi.mem_some_s", "host"), window.rate("mem.swap_in_bytes", "host")
    total, left = window.level("mem.total_bytes", "host"), window.level("mem.available_bytes", "host")
    if pressure is not None:
        found["memory.pressure_share", JOB] = min(1.0, pressure)
    if swapped is not None:
        found["memory.swap_in_mb_per_s", JOB] = swapped / _MB
    if total and left is not None:
        found["memory.host_left_share", JOB] = left / total
    for rank, process in process_by_rank(window.recording.processes).items():
        held = _held(window, f"pid:{process.pid}")
        if held is not None:
            found["memory.limit_used_share", f"rank:{rank}"], found["memory.limit_mb", f"rank:{rank}"] = held
    return found


def _held(window: Window, scope: str) -> tuple[float, float] | None:
    """(share of the limit that no page cache would give back, the limit in MB), as in nine tenths of the readings at most."""
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
