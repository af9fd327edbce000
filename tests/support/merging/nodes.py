"""Recordings of one job on two hosts with unrelated clocks. Not a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recordings import plan, recording
from rn50_advisor.advisor.model.recording import Meta, Recording, Series

APART_NS = 5_000_000_000_123  # between the two monotonic clocks: the machines booted at different times
WALL_APART_S = 0.4  # error of the second host's wall clock, which is not synchronised

Plans = Mapping[int, Sequence[Mapping[str, float]]]


def two_nodes(plans: Plans, *, wire_ms: float = 2.0, jitter_us: int = 300, drift: float = 0.0) -> list[Recording]:
    """The ranks of `plans` in lockstep, the lower half recorded on host `a`, the upper on host `b`."""
    whole = recording(plans, wire_ms=wire_ms)
    ranks = sorted(plans)
    half = len(ranks) // 2
    first = only(whole, ranks[:half], host="a", group=0)
    second = only(whole, ranks[half:], host="b", group=1)
    return [first, elsewhere(second, APART_NS, jitter_us=jitter_us, drift=drift)]


def four_ranks(slow: int | None = None, steps: int = 40) -> dict[int, list[dict[str, float]]]:
    return {rank: plan(steps, forward=60 if rank == slow else 30) for rank in range(4)}


def with_launcher_variables(own: Recording, change: dict[str, str]) -> Recording:
    return replace(
        own, facts={p: {"environment_rank": {**f["environment_rank"], **change}} for p, f in own.facts.items()}
    )


def only(whole: Recording, ranks: Sequence[int], *, host: str, group: int) -> Recording:
    """The recording of a host with these ranks; process ids start at 100 on each host."""
    processes = tuple(
        replace(p, pid=100 + place) for place, p in enumerate(p for p in whole.processes if p.rank in ranks)
    )
    variables: dict[str, Any] = {"WORLD_SIZE": str(len(whole.steps)), "GROUP_RANK": str(group)}
    variables |= {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    return replace(
        whole,
        meta=replace(whole.meta, host=host),
        processes=processes,
        facts={p.pid: {"environment_rank": {**variables, "RANK": str(p.rank)}} for p in processes},
        steps={rank: whole.steps[rank] for rank in ranks},
        comm={rank: whole.comm[rank] for rank in ranks if rank in whole.comm},
    )


def elsewhere(own: Recording, apart_ns: int, *, jitter_us: int = 0, drift: float = 0.0) -> Recording:
    """The same on a clock that is `apart_ns` behind and runs faster by `drift`; ends of steps are noticed up to `jitter_us` late."""
    random = np.random.default_rng(7)

    def t(t_ns: Any) -> Any:
        since = np.asarray(t_ns, np.int64) - own.meta.started_ns
        return np.asarray(t_ns, np.int64) - apart_ns + np.rint(since * drift).astype(np.int64)

    steps = {}
    for rank, rows in own.steps.items():
        moved = rows.copy()
        noticed = random.integers(0, jitter_us * 1000 + 1, rows.size)
        moved["t_start_ns"], moved["t_end_ns"] = t(rows["t_start_ns"]), t(rows["t_end_ns"]) + noticed
        steps[rank] = moved
    meta: Meta = replace(
        own.meta,
        started_ns=int(t(own.meta.started_ns)),
        last_ns=int(t(own.meta.last_ns)),
        ended_ns=None if own.meta.ended_ns is None else int(t(own.meta.ended_ns)),
        started_unix_s=own.meta.started_unix_s + WALL_APART_S,
    )
    processes = tuple(
        replace(p, first_seen_ns=int(t(p.first_seen_ns)), ended_ns=None if p.ended_ns is None else int(t(p.ended_ns)))
        for p in own.processes
    )
    samples = {name: Series(t(series.t_ns), series.value) for name, series in own.samples.items()}
    events = tuple(replace(event, t_ns=int(t(event.t_ns))) for event in own.events)
    return replace(own, meta=meta, processes=processes, steps=steps, samples=samples, events=events)


def with_host_samples(own: Recording, **values: float) -> Recording:
    """Adds constant levels, and steady counters for names in `_s`, over the whole recording; `__` in a name stands for the dot."""
    t_ns = np.array([own.meta.started_ns, own.meta.last_ns], np.int64)
    scopes = {"cpu.allowed_cores": "job", "job.cpu_s": "job"}
    made = {}
    for name, value in values.items():
        metric = name.replace("__", ".")
        counter = metric.endswith("_s")
        span_s = (own.meta.last_ns - own.meta.started_ns) / 1e9
        made[metric, scopes.get(metric, "host")] = Series(
            t_ns, np.array([0.0, value * span_s] if counter else [value] * 2)
        )
    return replace(own, samples={**own.samples, **made})
