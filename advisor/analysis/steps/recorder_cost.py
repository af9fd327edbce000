"""Measures the advisor's own cost: its recorder in each step and in workers, its agent process, and its start-up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.steps.steady_state import Array, RankSteps
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.advisor.model.report import Overhead
from rn50_advisor.probes.documents.event_documents import ShedProbe

STRETCHES = 10


def own_cost(recording: Recording, everything: Mapping[int, RankSteps]) -> Overhead:
    agent = recording.meta.agent
    wall = agent.get("wall_s") or 0.0
    shed = tuple(event.data.get("probe", "") for event in events_of(recording.events, ShedProbe))
    startup = agent.get("startup_s")
    agent_share = agent["cpu_s"] / wall if wall else None
    workers_s = agent.get("workers_wall_s")
    worker_share = agent.get("workers_self_s", 0.0) / workers_s if workers_s else None
    driver_share = _driver_share(recording)
    if not everything:
        return Overhead(
            startup_s=startup,
            agent_cpu_share=agent_share,
            shed=shed,
            worker_share=worker_share,
            driver_share=driver_share,
        )
    own = [_usual_s(steps.columns["self"], steps.count) for steps in everything.values()]
    length = [float(np.median(steps.length / steps.count)) for steps in everything.values()]
    return Overhead(
        us_per_step=1e6 * max(own),
        step_share=max(o / max(t, 1e-9) for o, t in zip(own, length, strict=True)),
        startup_s=startup,
        agent_cpu_share=agent_share,
        shed=shed,
        worker_share=worker_share,
        driver_share=driver_share,
    )


def _driver_share(recording: Recording) -> float | None:
    """Share of wall time spent querying the GPU driver, without opening it once."""
    series = recording.samples.get(("gpu.probe_s", "host"))
    if series is None or series.value.size < 2 or series.t_ns[-1] <= series.t_ns[0]:
        return None
    return float(series.value[-1] - series.value[0]) / (float(series.t_ns[-1] - series.t_ns[0]) / 1e9)


def _usual_s(own_s: Array, count: Array) -> float:
    """Seconds per step in the median stretch of the run.

    The median step would miss the cost: the marks of many short steps are read in one of them. The mean of all steps would include the
    few moments when facts are written, most of them at the start; it is what a run shows in which most stretches read no marks.
    """
    # of as many steps each: rows of thinned steps hold hundreds
    edges = np.searchsorted(np.cumsum(count), count.sum() * np.arange(1, STRETCHES) / STRETCHES, "right")
    stretches = zip(np.split(own_s, edges), np.split(count, edges), strict=True)
    usual = float(np.median([own.sum() / steps.sum() for own, steps in stretches if steps.size]))
    return usual or float(own_s.sum() / count.sum())
