"""Turns a recording into the report that every screen and export shows."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.edits.attach import with_edits
from rn50_advisor.advisor.instances import only_one
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve, worker_curve
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_JOULES_PER_SAMPLE, GPU_WATTS
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Job, Report, Verdict
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.model.wording.quantities import shorten
from rn50_advisor.advisor.verdict.rule_engine import Judgement, fix_sentence, judge
from rn50_advisor.advisor.verdict.traced_analysis import as_traced
from rn50_advisor.advisor.verdict.triage_evidence import with_machine, without_triage
from rn50_advisor.rules.analysis_reading import workers_that_fit
from rn50_advisor.rules.registry import all_rules
from rn50_advisor.rules.rule import Rule

_HOST_FAMILIES = ("CPU", "MEM", "DSK")  # rules on the resources of one host


@functools.cache
def _rules() -> tuple[Rule, ...]:
    return all_rules()


@contextlib.contextmanager
def of_a_recording(recording: Recording) -> Iterator[None]:
    """Turns any failure on a user's file into NotARun: the last resort after the checks of its reader."""
    try:
        yield
    except AdvisorError:
        raise
    except Exception as error:
        what = recording.meta.name or "the run"
        raise NotARun(
            f"{what} cannot be analysed: {type(error).__name__}: {shorten(str(error), 200)}; its file may be damaged",
            "if it is not, this is a bug: please report it with what `rn50-advisor bundle` makes of the run; "
            "RN50_ADVISOR_DEBUG=1 shows where",
        ) from error


def diagnose(recording: Recording, config: Config | None = None) -> Report:
    """Returns the report of a recording. Pure except for the set of installed rules: equal inputs give equal reports. Raises NotARun."""
    with of_a_recording(recording):
        return _diagnose(recording, config)


def _diagnose(recording: Recording, config: Config | None) -> Report:
    analysis = as_traced(analyse(recording))
    judgement = with_hosts(judge(analysis, _rules(), config or Config()), analysis)
    gpus = tuple(gpu.index for gpu in analysis.gpu_view.used)
    findings = with_machine(
        judgement.findings, recording.meta.environment, _rules(), host=recording.meta.host, gpus=gpus
    )
    edited = with_edits(findings, analysis, recording.sources)
    return Report(
        verdict=with_place(judgement.verdict, findings, edited),
        job=_job(analysis),
        throughput=replace(
            analysis.throughput,
            watts=analysis.get(GPU_WATTS),
            joules_per_sample=analysis.get(GPU_JOULES_PER_SAMPLE),
        ),
        step_time=analysis.step_time,
        findings=edited,
        outcomes=judgement.outcomes,
        budget=analysis.budget,
        capacities=analysis.capacities,
        segments=analysis.segments,
        timeline=analysis.timeline,
        history=analysis.history,
        environment=_environment(recording, analysis),
        facts=analysis.facts,
        gaps=_gaps(recording, analysis),
        overhead=analysis.overhead,
        ranks=analysis.ranks,
        host=analysis.host,
        gpus=analysis.gpus,
        worker_curve=_worker_curve(analysis),
        nodes=analysis.nodes,
        tried=recording.tried,
    )


def with_place(verdict: Verdict, findings: tuple[Finding, ...], edited: tuple[Finding, ...]) -> Verdict:
    """Names the place of the fix that the job's code showed, as its finding does."""
    for before, after in zip(findings, edited, strict=True):
        if before.rule == verdict.rule and before.fixes and before.fixes[0].where != after.fixes[0].where:
            placed = replace(before.fixes[0], where=after.fixes[0].where)
            words = verdict.summary.replace(fix_sentence(before.fixes[0]), fix_sentence(placed))
            return replace(verdict, summary=words)
    return verdict


def with_hosts(judgement: Judgement, analysis: Analysis) -> Judgement:
    """Adds hosts to the findings of a multi-host job: those of their ranks, or the host whose cores, memory or disk they are about."""
    if not analysis.nodes:
        return judgement
    findings = tuple(
        replace(f, scope=replace(f.scope, hosts=f.scope.hosts or _hosts(f, analysis))) for f in judgement.findings
    )
    root = next((f for f in findings if f.rule == judgement.verdict.rule), None)
    verdict = judgement.verdict
    if root is not None and root.scope.hosts and len(root.scope.hosts) < len(analysis.nodes):
        verdict = replace(verdict, summary=f"On {', '.join(root.scope.hosts)}. {verdict.summary}".strip())
    return replace(judgement, findings=findings, verdict=verdict)


def _hosts(finding: Finding, analysis: Analysis) -> tuple[str, ...]:
    ranks = set(finding.scope.ranks)
    if ranks:
        return tuple(node.host for node in analysis.nodes if ranks & set(node.ranks))
    gpus = [strip.host for strip in analysis.gpus if strip.index in finding.scope.gpus]
    if any(gpus):
        return tuple(node.host for node in analysis.nodes if node.host in gpus)
    of_a_host = finding.rule.startswith(_HOST_FAMILIES)
    return tuple(node.host for node in analysis.nodes if node.shown) if of_a_host else ()


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
        traced=meta.traced,
    )


def _worker_curve(analysis: Analysis) -> WorkerCurve | None:
    samples = analysis.get(STEP_SAMPLES)
    if analysis.forecast is None or not samples or analysis.model is None:
        return None
    knee = analysis.forecast.worth(workers_that_fit(analysis))
    return worker_curve(analysis.forecast, samples * len(analysis.model.own), knee)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _environment(recording: Recording, analysis: Analysis) -> dict[str, Any]:
    meta, host, gpus = recording.meta, analysis.host, analysis.gpus
    instance = only_one(
        [gpu.name for gpu in gpus],
        gpu_memory_bytes=gpus[0].mem_total_bytes if gpus else None,
        vcpus=host.cores if host else None,
        memory_bytes=host.mem_total_bytes if host else None,
    )
    return {
        **({"instance_like": instance.words} if instance else {}),
        **({"host": meta.host, "cwd": meta.cwd, "advisor": meta.advisor_version} if not meta.traced else {}),
        **({"host": meta.host} if meta.traced and meta.host else {}),
        "started": meta.started_unix_s,
        **without_triage(meta.environment),
    }


def _gaps(recording: Recording, analysis: Analysis) -> tuple[ProbeGap, ...]:
    """Returns measurements that probes could not take or analysis could not derive, and an early stop of the recording."""
    found = list(recording.gaps)
    found += [ProbeGap(measure.name, "job", why) for measure, why in sorted(analysis.missing.items())]
    meta = recording.meta
    if meta.recording_stopped_ns is not None:
        since = (meta.recording_stopped_ns - meta.started_ns) / 1e9
        reason = f"recording stopped {since:.1f} s after the start: {meta.recording_stopped_reason or 'unknown reason'}"
        hint = "free space where runs are kept (--run-dir)" if "is full" in reason else ""
        found.insert(0, ProbeGap("recording", "job", reason, hint))
    return tuple(found)
