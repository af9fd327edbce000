"""From a recording to the one object that every screen and export shows."""

from __future__ import annotations

import functools
import signal
from typing import Any

from advisor.analysis.analyse import analyse
from advisor.core.analysis import Analysis
from advisor.core.config import Config
from advisor.core.metrics import ProbeGap
from advisor.core.recording import Recording
from advisor.core.report import Job, Report
from advisor.core.worker_curve import WorkerCurve, worker_curve
from advisor.edits.attach import with_edits
from advisor.engine import judge
from rules.reading import room_for_workers
from rules.registry import all_rules
from rules.rule import Rule


@functools.cache
def _rules() -> tuple[Rule, ...]:
    return all_rules()


def diagnose(recording: Recording, config: Config | None = None) -> Report:
    """Pure but for the set of installed rules: the same recording always gives the same report."""
    analysis = analyse(recording)
    judgement = judge(analysis, _rules(), config or Config())
    return Report(
        verdict=judgement.verdict,
        job=_job(analysis),
        throughput=analysis.throughput,
        step_time=analysis.step_time,
        findings=with_edits(judgement.findings, analysis, recording.sources),
        outcomes=judgement.outcomes,
        budget=analysis.budget,
        capacities=analysis.capacities,
        segments=analysis.segments,
        timeline=analysis.timeline,
        environment=_environment(recording),
        facts=analysis.facts,
        gaps=_gaps(recording, analysis),
        overhead=analysis.overhead,
        ranks=analysis.ranks,
        host=analysis.host,
        gpus=analysis.gpus,
        worker_curve=_worker_curve(analysis),
    )


def _job(analysis: Analysis) -> Job:
    meta = analysis.meta
    return Job(
        argv=meta.argv,
        exit_code=meta.exit_code,
        duration_s=analysis.duration_s,
        ranks=analysis.world_size,
        running=analysis.running,
        exit_signal=None if meta.exit_signal is None else _signal_name(meta.exit_signal),
        name=meta.name,
    )


def _worker_curve(analysis: Analysis) -> WorkerCurve | None:
    samples = analysis.get("step.samples")
    if analysis.forecast is None or not samples or analysis.model is None:
        return None
    knee = analysis.forecast.worth(room_for_workers(analysis))
    return worker_curve(analysis.forecast, samples * len(analysis.model.own), knee)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _environment(recording: Recording) -> dict[str, Any]:
    meta = recording.meta
    return {
        "host": meta.host,
        "cwd": meta.cwd,
        "advisor": meta.advisor_version,
        "started": meta.started_unix_s,
        **meta.environment,
    }


def _gaps(recording: Recording, analysis: Analysis) -> tuple[ProbeGap, ...]:
    """What probes could not have, what analysis could not derive, and since when nothing was recorded."""
    found = list(recording.gaps)
    found += [ProbeGap(name, "job", why) for name, why in sorted(analysis.missing.items())]
    meta = recording.meta
    if meta.recording_stopped_ns is not None:
        since = (meta.recording_stopped_ns - meta.started_ns) / 1e9
        reason = f"recording stopped {since:.1f} s after the start: {meta.recording_stopped_reason or 'unknown reason'}"
        found.insert(0, ProbeGap("recording", "job", reason, "free space where runs are kept (--run-dir)"))
    return tuple(found)
