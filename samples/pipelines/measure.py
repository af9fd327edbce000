"""One pipeline: watched with the workers it has, forecast for the advised number, run with that; what was said and what came."""

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
    """Samples/s of all ranks. `skipped`: why there is nothing else."""

    pipeline: str
    what: str
    before: int = 0  # workers per rank
    then: int = 0
    advised: bool = False  # whether `then` is the knee of the forecast, or just another point of the curve
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
        """Middle of the prediction over what was measured."""
        return sum(self.predicted) / 2 / self.measured if self.predicted and self.measured else None

    @property
    def inside(self) -> bool | None:
        return self.predicted[0] <= self.measured <= self.predicted[1] if self.predicted and self.measured else None

    @property
    def held(self) -> bool | None:
        """Inside the interval, give or take what two runs of one job differ by."""
        if not self.predicted or not self.measured:
            return None
        return self.predicted[0] * (1 - RUNS_DIFFER) <= self.measured <= self.predicted[1] * (1 + RUNS_DIFFER)


def measure(pipeline: Pipeline, bench: Bench, *, tries: int = 2) -> Row:
    """`tries`: runs at most, of each of the two, until one is not disturbed by others."""
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
    """(workers of the second run, whether they are the knee)."""
    curve = report["worker_curve"]
    if curve is None or curve["knee"] == curve["measured"]:
        return pipeline.otherwise, False
    return curve["knee"], True


def forecast_at(report: Mapping[str, Any], workers: int) -> tuple[float, float] | None:
    points = report["worker_curve"]["points"] if report["worker_curve"] else []
    found = next((point["samples_per_s"] for point in points if point["workers"] == workers), None)
    return (found[0], found[1]) if found else None


def _report(pipeline: Pipeline, workers: int, bench: Bench, tries: int) -> tuple[Mapping[str, Any], bool]:
    """The report of one run that nobody disturbed, as far as tries go, and whether somebody did."""
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
