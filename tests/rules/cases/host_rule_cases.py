"""Jobs that the host slows down or will end: threads, collections, memory, DDP's search. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis, MemoryTrend
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rule_cases import Phases, hot, job, loader, rank


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
    long: float = 1.0,
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
        "gc.long_share": dict.fromkeys(numbers, long),
    }
    known = {"gc": {"enabled": True, "collections": list(counts)}}
    given = {"values": {**values, **more.pop("values", {})}, "facts": {"0": known, "1": known}}
    return job(own_s or {n: rank() for n in numbers}, **{**given, **more})


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


def trend(
    per_minute: float = 60.0,
    seconds: float = 300.0,
    *,
    first: float = 1000.0,
    bend: float = 0.5,
    rank: int = 1,
    **more: Any,
) -> MemoryTrend:
    """Growth of so many MB per minute from `first`; `bend`: the share of it in the first half."""
    grown = per_minute / 60.0 * seconds * 2 / 3
    thirds = (first, first + bend * grown, first + grown)
    given = {"role": "rank", "processes": 1, "copied": False, "steps": 0.5 * seconds, **more}
    return MemoryTrend(rank, seconds=seconds, thirds_mb=thirds, mb_per_s=per_minute / 60.0, **given)


RECORDS: DescribedDataset = {
    "class": "Pictures",
    "length": 900_000,
    "objects": [{"name": "records", "kind": "list", "length": 900_000, "of": "dict", "bytes": 2_000_000_000}],
}


def mem002(
    trends: tuple[MemoryTrend, ...] | None = None,
    headroom: float | None = 3000.0,
    *,
    copied: float | None = None,
    dataset: DescribedDataset | None = None,
    **more: Any,
) -> Analysis:
    """Rank 1 grows by 60 MB per minute, and 3000 MB are left. `copied`: instead, MB of copies that four workers hold."""
    grown = {name: more.pop(name) for name in ("per_minute", "seconds", "bend", "steps", "first") if name in more}
    found = trends if trends is not None else (trend(**grown),) if copied is None else ()
    values = {"memory.watched_s": max((t.seconds for t in found), default=100.0)}
    if headroom is not None:
        values["memory.headroom_mb"] = headroom
    if copied is not None:
        values |= {"memory.copied_mb": copied, "loader.workers": {0: 2.0, 1: 2.0}}
        more.setdefault("loaders", tuple(loader(n, 2, dataset=dataset or RECORDS) for n in (0, 1)))
    return job({0: rank(), 1: rank()}, **{"values": values, "memory": found, **more})
