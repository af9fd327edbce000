"""Jobs that the host slows down or will end: threads, collections, memory, DDP's search. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rule_cases import SCRIPT, Phases, dat001, hot, job, rank

from rn50_advisor.advisor.model.analysis import Analysis, MemoryTrend
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder


def cpu005(
    threads: float = 16.0,
    waiting: float = 20.0,
    delay: float = 0.3,
    ranks: int = 2,
    *,
    others: float = 0.2,
    own: dict[int, Phases] | None = None,
    **more: Any,
) -> Analysis:
    """Each rank on sixteen cores computes with so many threads, `waiting` of all of them stand in line."""
    numbers = range(ranks)
    values: dict[str, Any] = {
        "threads.intra_op": dict.fromkeys(numbers, threads),
        "threads.waiting": dict.fromkeys(numbers, waiting / ranks),
        "step.run_delay_s": dict.fromkeys(numbers, delay),
        "cpu.other_cores": others,
    }
    phases = own or {n: rank() for n in numbers}
    return job(phases, **{"values": values, "job_cores": 15.5, **more})


def cpu006(
    lost: float = 0.2,
    own: float = 0.1,
    pause: float = 0.02,
    *,
    only: int | None = None,
    counts: tuple[int, ...] = (900, 80, 6),
    between: float = 0.0,
    own_s: dict[int, Phases] | None = None,
    **more: Any,
) -> Analysis:
    """Without collections the step would be `lost` seconds shorter; each rank (or only one) collects `own` seconds."""
    numbers = (0, 1)
    values: dict[str, Any] = {
        "gc.critical_s": lost,
        "step.gc_s": {n: own if only in (None, n) else 0.0 for n in numbers},
        "gc.repeated_pause_s": {n: pause if only in (None, n) else 0.0 for n in numbers},
        "gc.between_s": dict.fromkeys(numbers, between),
    }
    known = {"gc": {"enabled": True, "collections": list(counts)}}
    given = {"values": {**values, **more.pop("values", {})}, "facts": {"0": known, "1": known}}
    return job(own_s or {n: rank() for n in numbers}, **{**given, **more})


def lop006(
    share: float = 0.2,
    error: float = 0.01,
    other: float = 0.5,
    *,
    asleep: float | None = None,
    looked: bool = True,
    seen: bool = True,
    everywhere: bool = False,
    **more: Any,
) -> Analysis:
    """Rank 1 waits for the interpreter for this share of its second; rank 0 needs `other` seconds by itself."""
    held = (0, 1) if everywhere else (1,)
    values: dict[str, Any] = {"step.asleep_s": {1: share if asleep is None else asleep}}
    if looked:
        values["interpreter.waiting_share"] = {0: 0.0, **dict.fromkeys(held, share)}
        values["interpreter.error"] = dict.fromkeys((0, 1), error)
        values["interpreter.lost_s"] = {0: 0.0, **dict.fromkeys(held, share)}
    threads = (Holder(1, "sender", "send_metrics", Where(SCRIPT, 77), 4, 5),) if seen else ()
    return job({0: rank(other), 1: rank()}, **{"values": values, "holders": threads, **more})


def lop007(
    waits: float = 0.2,
    asleep: float | None = None,
    *,
    alone: bool = False,
    seen: bool = True,
    samples: int = 80,
    **more: Any,
) -> Analysis:
    """Rank 1, or both ranks, sleep so many seconds of their second in a line of the script's."""
    sleepers = (1,) if alone else (0, 1)
    own = {n: rank(forward=0.5, backward=0.5 if n in sleepers else 0.3) for n in (0, 1)}
    values = {"step.asleep_s": dict.fromkeys(sleepers, waits if asleep is None else asleep)}
    if seen:
        values["step.waiting_s"] = {0: 0.0, **dict.fromkeys(sleepers, waits)}
    line = replace(hot(77, "fetch_features", io=False), samples=samples)
    return job(own, values=values, waiting_lines=(line,) if seen else (), **more)


def lop008(
    spends: float = 0.2,
    *,
    alone: bool = False,
    seen: bool = True,
    samples: int = 80,
    forward: float = 0.5,
    computed: float | None = None,
    making: float = 0.1,
    **more: Any,
) -> Analysis:
    """Rank 1, or both ranks, compute so many seconds of their second between batch and model; the job may use two cores."""
    busy = (1,) if alone else (0, 1)
    own = {n: rank(forward=forward, backward=(1.0 if n in busy else 0.8) - forward) for n in (0, 1)}
    values: dict[str, Any] = {"loader.workers": {0: 1.0, 1: 1.0}, "fetch.wall_s": {0: making, 1: making}}
    if seen:
        values["step.preparing_s"] = {0: 0.0, **dict.fromkeys(busy, spends)}
    line = replace(hot(57, "train", io=False), samples=samples)
    made = job(own, values=values, preparing_lines=(line,) if seen else (), **more)
    assert made.model is not None
    return replace(made, model=replace(made.model, job_cpu_s=computed, allowed_cores=2.0))


def lop009(spends: float = 0.2, *, alone: bool = False, seen: bool = True, samples: int = 80, **more: Any) -> Analysis:
    """As LOP008's, after the model."""
    made = lop008(spends, alone=alone, seen=seen, samples=samples, **more)
    values = {("step.measuring_s" if k == "step.preparing_s" else k, scope): v for (k, scope), v in made.values.items()}
    return replace(made, values=values, measuring_lines=made.preparing_lines, preparing_lines=())


def trend(
    per_minute: float = 60.0,
    seconds: float = 300.0,
    *,
    first: float = 1000.0,
    bend: float = 0.5,
    rank: int = 1,
    **more: Any,
) -> MemoryTrend:
    """So many MB a minute on top of `first`; `bend` of what it grows falls in the first half."""
    grown = per_minute / 60.0 * seconds * 2 / 3
    thirds = (first, first + bend * grown, first + grown)
    given = {"role": "rank", "processes": 1, "copied": False, "steps": 0.5 * seconds, **more}
    return MemoryTrend(rank, seconds=seconds, thirds_mb=thirds, mb_per_s=per_minute / 60.0, **given)


def mem001(
    pressure: float | None = 0.2,
    held: float | None = 0.93,
    limit: float = 8000.0,
    swapped: float | None = 0.0,
    host_left: float = 0.6,
    **more: Any,
) -> Analysis:
    """Both ranks under one limit; some process waits for memory a fifth of the time."""
    known: dict[str, Any] = {
        "memory.pressure_share": pressure,
        "memory.swap_in_mb_per_s": swapped,
        "memory.host_left_share": host_left,
    }
    values = {name: value for name, value in known.items() if value is not None}
    if held is not None:
        values |= {"memory.limit_used_share": {0: held, 1: held}, "memory.limit_mb": {0: limit, 1: limit}}
    return job({0: rank(), 1: rank()}, **{"values": values, **more})


def mem002(trends: tuple[MemoryTrend, ...] | None = None, headroom: float | None = 3000.0, **more: Any) -> Analysis:
    """Rank 1 grows by 60 MB a minute, and 3000 MB are left."""
    grown = {name: more.pop(name) for name in ("per_minute", "seconds", "bend", "steps", "first") if name in more}
    found = (trend(**grown),) if trends is None else trends
    values = {"memory.watched_s": max((t.seconds for t in found), default=100.0)}
    if headroom is not None:
        values["memory.headroom_mb"] = headroom
    return job({0: rank(), 1: rank()}, **{"values": values, "memory": found, **more})


def com004(searched: float = 40.0, used: float = 0.0, *, other: float = 40.0, **more: Any) -> Analysis:
    values = {"ddp.searched": {0: searched, 1: other}, "ddp.with_unused": {0: 0.0, 1: used}}
    models = [{"find_unused_parameters": 1, "file": SCRIPT, "line": 51}] if searched else [{"file": SCRIPT, "line": 51}]
    return job({0: rank(), 1: rank()}, **{"values": values, "facts": {"0": {"ddp": models}}, **more})


def cpu008(share: float = 0.5, cores: float = 6.0, **more: Any) -> Analysis:
    """Workers that keep cores busy with other threads than those that make batches: so many, and this share of their CPU time."""
    made = dat001(**{"cpu": 0.5, "delay": 0.4, **more})
    helping = {"loader.helper_share": share, "loader.helper_cores": cores / 2}
    values = {(name, f"rank:{number}"): value for name, value in helping.items() for number in (0, 1)}
    return replace(made, values={**made.values, **values})


def cpu007(
    delay: float = 0.3,
    bound: float = 1.0,
    free: float = 12.0,
    *,
    in_fetch: float = 0.0,
    wait: float = 0.0,
    allowed: float = 16.0,
    given: float | None = None,
    **more: Any,
) -> Analysis:
    """Ranks wait so long for the cores that they are bound to; their workers for `in_fetch` of making a batch."""
    values: dict[str, Any] = {
        "step.run_delay_s": {0: delay, 1: delay},
        "cpu.affinity_cores": bound,
        "cpu.allowed_cores": allowed,
        "cpu.host_busy_cores": allowed - free,
        "fetch.delay_share": {0: in_fetch, 1: in_fetch},
    }
    values |= {} if given is None else {"cpu.given_cores": given}
    told = {str(number): {"cpus_allowed": list(range(int(bound)))} for number in (0, 1)}
    own = {number: rank(input_wait=wait) for number in (0, 1)}
    return job(own, **{"values": values, "facts": told, **more})
