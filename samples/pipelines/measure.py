"""Measures one pipeline: watches it with its own workers, runs it with the advised number, and compares forecast and result."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.findings import RUNS_DIFFER
from samples.faults.observe import JobWentWrong, observe
from samples.faults.runner import STEADY_HEAP, Bench, disturbed, held
from samples.faults.scenario import CannotBeMade
from samples.pipelines.catalogue import Pipeline


@dataclass(frozen=True, slots=True)
class Row:
    """One pipeline's result; rates are samples/s of all ranks. `skipped`: why nothing was measured."""

    pipeline: str
    what: str
    before: int = 0  # workers per rank
    then: int = 0
    advised: bool = False  # True if `then` is the knee of the forecast, False if it is just another point of the curve
    verdict: str = ""
    rate_before: float = 0.0
    predicted: tuple[float, float] | None = None
    measured: float = 0.0
    disturbed: bool = False
    skipped: str = ""
    advisor: str = ""  # its version
    date: str = ""

    @property
    def ratio(self) -> float | None:
        """Middle of the prediction divided by the measured rate."""
        return sum(self.predicted) / 2 / self.measured if self.predicted and self.measured else None

    @property
    def inside(self) -> bool | None:
        return self.predicted[0] <= self.measured <= self.predicted[1] if self.predicted and self.measured else None

    @property
    def held(self) -> bool | None:
        """True if the measured rate is in the interval, widened by the variation between two runs of one job."""
        if not self.predicted or not self.measured:
            return None
        return self.predicted[0] * (1 - RUNS_DIFFER) <= self.measured <= self.predicted[1] * (1 + RUNS_DIFFER)


def measure(pipeline: Pipeline, bench: Bench, *, tries: int = 2) -> Row:
    """Runs the pipeline with both worker counts; `tries`: maximum of runs for each, until others disturb none."""
    row = Row(pipeline.name, pipeline.what, pipeline.workers)
    try:
        before, noisy = _report(pipeline, pipeline.workers, bench, tries)
        then, advised = choose_workers(before, pipeline)
        after, noisy_too = _report(pipeline, then, bench, tries)
    except (CannotBeMade, JobWentWrong) as reason:
        return replace(row, skipped=str(reason))
    return replace(
        row,
        then=then,
        advised=advised,
        verdict=before["verdict"]["rule"] or before["verdict"]["state"],
        rate_before=before["throughput"]["samples_per_s"] or 0.0,
        predicted=forecast_at(before, then),
        measured=after["throughput"]["samples_per_s"] or 0.0,
        disturbed=noisy or noisy_too,
    )


def choose_workers(report: Mapping[str, Any], pipeline: Pipeline) -> tuple[int, bool]:
    """Returns (workers of the second run, True if they are the knee of the forecast)."""
    curve = report["worker_curve"]
    if curve is None or curve["knee"] == curve["measured"]:
        return pipeline.otherwise, False
    return curve["knee"], True


def forecast_at(report: Mapping[str, Any], workers: int) -> tuple[float, float] | None:
    points = report["worker_curve"]["points"] if report["worker_curve"] else []
    found = next((point["samples_per_s"] for point in points if point["workers"] == workers), None)
    return (found[0], found[1]) if found else None


def _report(pipeline: Pipeline, workers: int, bench: Bench, tries: int) -> tuple[Mapping[str, Any], bool]:
    """Runs the pipeline until others do not disturb it, at most `tries` times. Returns the last report, and True if it was disturbed."""
    job = pipeline.with_workers(workers)
    job = replace(job, environment={**STEADY_HEAP, **job.environment})
    for attempt in range(tries):
        with tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            with held(pipeline.fixtures, folder) as conditions:
                seen = observe(job, conditions, folder / "job")
        noisy = disturbed(pipeline.fixtures, seen)
        if not noisy or attempt == tries - 1:
            break
    return seen.report, noisy
