"""A reading as a few time series, for every engine the same: named as OpenTelemetry names them, from which Prometheus's names follow.

What was not measured has no series. A series says what holds now; what is over with the job is not said of one that has ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor import __version__
from rn50_advisor.advisor.model.report import EPOCH_START, INPUT_OR_FORWARD, Report
from rn50_advisor.advisor.outlets.outlet import RunReading

NAMESPACE = "rn50_advisor"
_SIGNALLED = 128  # a shell's exit code of what a signal ended, less the signal's number

# Units as in UCUM, and what they add to a name in Prometheus; those in braces name what is counted and add nothing.
_SUFFIXES = {"s": "_seconds", "1": "_ratio", "{sample}/s": "_per_second"}


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    value: float
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SeriesFamily:
    """All series of one name. A `total` only grows while the run goes."""

    name: str  # without the namespace, parts joined by dots
    unit: str
    what: str
    points: tuple[SeriesPoint, ...]
    kind: Literal["gauge", "total"] = "gauge"

    @property
    def otel_name(self) -> str:
        return f"{NAMESPACE}.{self.name}"

    @property
    def prometheus_name(self) -> str:
        """The name that Prometheus makes of `otel_name` when it is sent OTLP: unit, then `_total`."""
        plain = f"{NAMESPACE}_{self.name.replace('.', '_')}{_SUFFIXES.get(self.unit, '')}"
        return f"{plain}_total" if self.kind == "total" else plain


def series_of(reading: RunReading) -> list[SeriesFamily]:
    """The families of a reading that have a point."""
    report, run = reading.report, {"run": reading.run}
    live = report.job.running and not reading.is_last
    families = [*_of_the_job(reading, run, live=live)]
    if live:
        families += [*_of_the_steps(report, run), *_of_the_ranks(report, run), *_of_what_holds_it_back(report, run)]
    return [family for family in families if family.points]


def _of_the_job(reading: RunReading, run: Mapping[str, str], *, live: bool) -> Iterable[SeriesFamily]:
    job, code = reading.report.job, _exit_code(reading.report)
    about = {**run, "host": reading.host, "version": __version__}
    yield SeriesFamily("run.info", "", "The run that the other series are of.", (SeriesPoint(1.0, about),))
    known = live or code is not None  # a job may outlive its recording
    what = "1 while the job runs, 0 once it has ended."
    yield SeriesFamily("job.running", "", what, _one(float(live) if known else None, run))
    yield SeriesFamily("job.duration", "s", "Time since the job started.", (SeriesPoint(job.duration_s, run),))
    what = "How the job ended; 128 and the number of a signal that ended it."
    yield SeriesFamily("job.exit_code", "", what, _one(code, run))
    yield SeriesFamily(
        "reading.timestamp", "s", "When the run was last read, in Unix time.", (SeriesPoint(reading.at_unix_s, run),)
    )


def _of_the_steps(report: Report, run: Mapping[str, str]) -> Iterable[SeriesFamily]:
    speed, path = report.throughput.samples_per_s, report.budget.critical
    yield SeriesFamily("samples", "{sample}/s", "Samples trained per second, all ranks together.", _one(speed, run))
    waited_s = (
        None if INPUT_OR_FORWARD in path or not path else path.get("input_wait", 0.0) + path.get(EPOCH_START, 0.0)
    )
    what = "Share of a step that it waits for input, on the critical path through the ranks."
    yield SeriesFamily("input_wait", "1", what, _one(_share(waited_s, path), run))
    what = "Share of a step that communication adds to it, on the critical path through the ranks."
    yield SeriesFamily("communication.exposed", "1", what, _one(_share(path.get("comm_exposed"), path), run))
    yield SeriesFamily(
        "overhead", "1", "Share of a step that the recorder takes.", _one(report.overhead.step_share, run)
    )


def _of_the_ranks(report: Report, run: Mapping[str, str]) -> Iterable[SeriesFamily]:
    ranks = [(strip, {**run, "rank": str(strip.rank)}) for strip in report.ranks]
    steps = tuple(SeriesPoint(float(strip.step), labels) for strip, labels in ranks)
    yield SeriesFamily("steps", "{step}", "Steps that a rank has made.", steps, "total")
    lengths = tuple(SeriesPoint(strip.step_s, labels) for strip, labels in ranks if strip.step_s is not None)
    yield SeriesFamily("step.duration", "s", "Median time of a rank's last steps.", lengths)
    phases = tuple(
        SeriesPoint(spent_s, {**run, "rank": str(rank), "phase": phase})
        for rank, budget in sorted(report.budget.per_rank.items())
        for phase, spent_s in budget.items()
    )
    yield SeriesFamily(
        "step.phase.duration", "s", "Mean time of a rank's steps in one phase; all phases are the step.", phases
    )
    ages = tuple(SeriesPoint(strip.phase_for_s, labels) for strip, labels in ranks if strip.alive)
    yield SeriesFamily("rank.phase.age", "s", "How long a living rank has been in its phase: long in a hang.", ages)


def _of_what_holds_it_back(report: Report, run: Mapping[str, str]) -> Iterable[SeriesFamily]:
    throttled = tuple(
        SeriesPoint(gpu.throttled_pct / 100, {**run, "gpu": str(gpu.index)})
        for gpu in report.gpus
        if gpu.throttled_pct is not None and gpu.ranks
    )
    yield SeriesFamily(
        "gpu.throttled", "1", "Share of time in which heat or a power brake lowered a GPU's clocks.", throttled
    )
    found = [
        (
            finding,
            {**run, "rule": finding.rule, "severity": finding.severity, "explained_by": finding.explained_by or ""},
        )
        for finding in report.findings
    ]
    active = tuple(SeriesPoint(1.0, labels) for _, labels in found)
    yield SeriesFamily(
        "finding.active", "", "1 for each rule that holds now; without explained_by it is a cause.", active
    )
    lost = tuple(
        SeriesPoint(finding.seconds_per_step, labels) for finding, labels in found if finding.seconds_per_step > 0
    )
    yield SeriesFamily("finding.lost", "s", "Time that a finding costs in each step.", lost)


def _exit_code(report: Report) -> int | None:
    if report.job.exit_signal is not None:
        number = getattr(signal, report.job.exit_signal, None)
        return _SIGNALLED + int(number if number is not None else report.job.exit_signal)
    return report.job.exit_code


def _one(value: float | None, labels: Mapping[str, str]) -> tuple[SeriesPoint, ...]:
    return () if value is None else (SeriesPoint(float(value), labels),)


def _share(part_s: float | None, path: Mapping[str, float]) -> float | None:
    whole_s = sum(path.values())
    return None if part_s is None or whole_s <= 0 else part_s / whole_s
