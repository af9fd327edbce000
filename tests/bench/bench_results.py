"""Results of `overhead.py`: costs as numbers, computed from the runs, and their JSON."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from bench_runs import BenchJob, Seen, cores
from sampling import interval_95

SCHEMA = "rn50-advisor/overhead/1"


@dataclass(frozen=True, slots=True)
class Paired:
    """A tool's cost, from alternating runs with and without it: medians of the pairs' ratios and differences."""

    step_s: float
    more_us: float
    ratio: float
    ratio_low: float  # 95 %
    ratio_high: float
    start_more_s: float  # from the command to the end of the first step
    end_more_s: float  # from the end of the last step to the end of the command


@dataclass(frozen=True, slots=True)
class StepCost:
    job: str
    title: str
    ranks: int
    workers: int
    skipped: str = ""
    steps: int = 0
    step_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    advisor: Paired | None = None
    recorder_us: float | None = None  # a step, as the report says
    traceml: Paired | None = None
    rounds: tuple[tuple[float, ...], ...] = ()  # seconds a step: without, with the advisor, with TraceML


@dataclass(frozen=True, slots=True)
class SwitchedCost:
    """The recorder's cost, from blocks of steps in one process with and without it."""

    job: str
    title: str
    off_us: float
    more_us: float
    error_us: float  # standard error of more_us
    median_step_more_us: float
    median_step_error_us: float
    pairs: int
    block_steps: int
    marks_us: dict[str, float] = field(default_factory=dict)  # `more_us` by mark, if each mark was timed


@dataclass(frozen=True, slots=True)
class StartUp:
    """Wall time of a whole command that does not train."""

    command: str
    under: str
    without_s: float
    more_s: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """Growth of a run: the difference between a long and a short one."""

    job: str
    title: str
    seconds: float
    agent_cpu_share: float  # of one core
    bytes_per_1000_steps: float
    folder_bytes: int  # of the short run
    lost_records: int
    shed: tuple[str, ...]


@dataclass(slots=True)
class Results:
    """All results; filled one measurement after the other."""

    pairs: int
    quick: bool
    traceml: str = ""  # its version, or how to get it; empty if it was not requested
    steps: list[StepCost] = field(default_factory=list)
    switched: list[SwitchedCost] = field(default_factory=list)  # whole steps
    marks: list[SwitchedCost] = field(default_factory=list)  # around their marks
    start_up: list[StartUp] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)


def paired(without: Sequence[Seen], tool: Sequence[Seen]) -> Paired:
    pairs = list(zip(without, tool, strict=True))
    ratios = [b.step_s / a.step_s for a, b in pairs]
    low, high = interval_95(ratios)
    return Paired(
        step_s=statistics.median(seen.step_s for seen in tool),
        more_us=1e6 * statistics.median(b.step_s - a.step_s for a, b in pairs),
        ratio=statistics.median(ratios),
        ratio_low=low,
        ratio_high=high,
        start_more_s=statistics.median(b.start_s - a.start_s for a, b in pairs),
        end_more_s=statistics.median(b.end_s - a.end_s for a, b in pairs),
    )


def step_cost(job: BenchJob, without: Sequence[Seen], advisor: Sequence[Seen], traceml: Sequence[Seen]) -> StepCost:
    ways = (without, advisor, traceml)
    said = [seen.own.recorder_us for seen in advisor if seen.own and seen.own.recorder_us is not None]
    return StepCost(
        job.name,
        job.title,
        job.ranks,
        job.workers,
        steps=without[0].steps,
        step_s=statistics.median(seen.step_s for seen in without),
        start_s=statistics.median(seen.start_s for seen in without),
        end_s=statistics.median(seen.end_s for seen in without),
        advisor=paired(without, advisor),
        recorder_us=statistics.median(said) if said else None,
        traceml=paired(without, traceml) if traceml else None,
        rounds=tuple(tuple(seen.step_s for seen in turn) for turn in zip(*filter(None, ways), strict=True)),
    )


def footprint(job: BenchJob, short: Seen, long: Seen) -> Footprint:
    assert short.own and long.own
    wall_s = long.own.agent_wall_s - short.own.agent_wall_s
    grown = long.own.folder_bytes - short.own.folder_bytes
    return Footprint(
        job.name,
        job.title,
        seconds=long.own.agent_wall_s,
        agent_cpu_share=(long.own.agent_cpu_s - short.own.agent_cpu_s) / wall_s,
        bytes_per_1000_steps=1000 * grown / (long.steps - short.steps),
        folder_bytes=short.own.folder_bytes,
        lost_records=long.own.lost_records,
        shed=long.own.shed,
    )


def machine() -> dict[str, Any]:
    """Properties of the machine that the numbers depend on, without host or user names."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "torch": version("torch"),
        "kernel": platform.release(),
    }


def write_json(file: Path, results: Results) -> None:
    partial = file.with_suffix(".part")  # an interrupt leaves the old file or the new one
    partial.write_text(json.dumps({"schema": SCHEMA, "machine": machine(), **asdict(results)}, indent=1) + "\n")
    partial.replace(file)
