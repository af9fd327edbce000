"""What the report says, in the run's time: the verdict, each finding, the parts of the run, its throughput, and how processes ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.recording import AnyEvent, Recording, data_of, events_of
from rn50_advisor.advisor.model.report import Report, Segment
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.advisor.report import phrases
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, Track, lanes
from rn50_advisor.probes.documents.event_documents import EndRequest, NotedDeath, OomKill, StallSeen

AT_ITS_STEP, AT_INCIDENT, AT_END = (
    "at the first step that it concerns",
    "at the incident",
    "at the end of the run: it holds for all of it",
)


class VerdictTracks:
    """Adds what people read of a report. Its processes come first in the trace, and the findings when the steps' places are known."""

    def __init__(self, book: TraceBook, recording: Recording, report: Report) -> None:
        self._book, self._recording, self._report = book, recording, report
        self._findings = book.process("findings")
        self._run = book.process(f"run · {recording.meta.name}" if recording.meta.name else "run")

    def add_findings(self, starts: Mapping[int, Mapping[int, int]]) -> None:
        """One thread each, the worst first. `starts`: by rank, when each step began."""
        end_ns = self._recording.meta.last_ns
        verdict = self._report.verdict
        about = {
            "state": verdict.state,
            "rule": verdict.rule,
            "title": verdict.title,
            "summary": verdict.summary,
            "steps": self._report.step_time.steps,
            "time lost": phrases.lost(self._report),
        }
        track = self._book.thread(self._findings, "verdict")
        self._book.instant(track, f"verdict: {verdict.title}", end_ns, "verdict", about)
        for finding in self._report.findings:
            track = self._book.thread(self._findings, f"{finding.rule} {finding.title}")
            t_ns, place = self._moment(finding, starts)
            args = {**finding_args(self._report, finding), "place": place}
            self._book.instant(track, f"{finding.rule} {finding.title}", t_ns, "finding", args)

    def _moment(self, finding: Finding, starts: Mapping[int, Mapping[int, int]]) -> tuple[int, str]:
        """When the finding's evidence begins, as far as it names a step or an incident."""
        since, ranks = finding.scope.since_step, finding.scope.ranks or tuple(starts)
        if since is not None:
            begun = [t for rank in ranks for step, t in starts.get(rank, {}).items() if step >= since]
            if begun:
                return min(begun), AT_ITS_STEP
        if finding.fatal:
            incidents = [
                event.t_ns
                for event in self._recording.events
                if data_of(event, StallSeen) is not None or _is_failure(event)
            ]
            if incidents:
                return min(incidents), AT_INCIDENT
        return self._recording.meta.last_ns, AT_END

    def add_run(self) -> None:
        """The parts of the run, each kind on a thread of its own, and its throughput."""
        report, origin = self._report, self._recording.meta.started_ns
        kinds: dict[str, list[Segment]] = {}
        for segment in report.segments:
            kinds.setdefault(segment.kind, []).append(segment)
        for kind, segments in kinds.items():
            spans = [(origin + round(1e9 * s.start_s), origin + round(1e9 * s.end_s)) for s in segments]
            chosen, word = lanes(spans), phrases.segment_word(kind)
            tracks = [
                self._book.thread(self._run, word if lane == 0 else f"{word} ({lane + 1})")
                for lane in range(max(chosen, default=-1) + 1)
            ]
            for segment, span, lane in zip(segments, spans, chosen, strict=True):
                args = {"first step": segment.first_step, "last step": segment.last_step, "about": segment.label}
                name = segment.label if kind == "epoch" and segment.label else word
                self._book.slice(tracks[lane], name, span, "segment", args)
        for title, unit, values in (
            ("throughput", "samples/s", [(p.t_s, p.samples_per_s) for p in report.timeline]),
            ("step time", "ms", [(p.t_s, None if p.step_s is None else 1e3 * p.step_s) for p in report.timeline]),
            ("input wait", "% of the step", [(p.t_s, _percent(p.input_wait_share)) for p in report.timeline]),
        ):
            self._book.counter(
                self._run, title, unit, [(origin + round(1e9 * t), v) for t, v in values if v is not None]
            )
        self._add_incidents()

    def _add_incidents(self) -> None:
        """Deaths, kills and requests to end, and what the trace does not hold."""
        found: list[tuple[int, str, dict[str, Any]]] = []
        for event in events_of(self._recording.events, NotedDeath):
            data = event.data
            if data.get("clean_exit") and data.get("orderly", True) and not data.get("exit_code"):
                continue
            who = (
                f"rank {event.rank}" if event.rank is not None and data.get("role") == "rank" else f"{data.get('role')}"
            )
            args = {"process": event.pid, "exit code": data.get("exit_code"), "signal": _signal(data.get("signal"))}
            found.append((event.t_ns, f"{who} ended", args))
        for killed in events_of(self._recording.events, OomKill):
            args = {"process": killed.pid, "command": killed.data.get("command")}
            found.append((killed.t_ns, "killed by the OOM killer", args))
        for request in events_of(self._recording.events, EndRequest):
            found.append((request.t_ns, "asked to end", {"signal": _signal(request.data.get("signal"))}))
        if found:
            track: Track = self._book.thread(self._run, "incidents")
            for t_ns, name, args in sorted(found, key=lambda one: one[0]):
                self._book.instant(track, name, t_ns, "incident", args)

    def add_left_out(self) -> None:
        """Perfetto shows no metadata of a JSON trace, so that the same words stand at the run's start, too."""
        if self._book.left_out:
            track = self._book.thread(self._run, "not in this trace")
            name = f"not in this trace: {counted(len(self._book.left_out), 'thing')}"
            numbered = {str(place + 1): words for place, words in enumerate(self._book.left_out)}
            self._book.instant(track, name, self._recording.meta.started_ns, "left out", numbered)


def finding_args(report: Report, finding: Finding) -> dict[str, Any]:
    """Everything that the report says of a finding."""
    fixes = [": ".join(part for part in (fix.title, phrases.place(fix), fix.change) if part) for fix in finding.fixes]
    place = next((phrases.place(fix) for fix in finding.fixes if fix.where), "")
    saving = finding.saving
    return {
        "rule": finding.rule,
        "title": finding.title,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "concerns": phrases.scope(finding.scope),
        "costs": phrases.cost(finding),
        "gain": phrases.gain(saving),
        "basis of the gain": saving.basis if saving else None,
        "measured by try": phrases.by_try(report, finding),
        "place in the code": place,
        "evidence": [phrases.evidence(item) for item in finding.evidence] or None,
        "fixes": fixes or None,
        "explained by": finding.explained_by,
        "explains": ", ".join(finding.explains),
    }


def _is_failure(event: AnyEvent) -> bool:
    death = data_of(event, NotedDeath)
    return death is not None and (bool(death.get("exit_code")) or bool(death.get("signal")))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _signal(number: int | None) -> str | None:
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return str(number)
