"""What of a run is news for people who do not watch it: it hangs, died, or became slower. Judged by the report, each event once."""

from __future__ import annotations

import math
import shlex
import signal
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from rn50_advisor.advisor.model.findings import Finding, Where
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.outlets.outlet import RunReading
from rn50_advisor.advisor.report import inert_text, phrases

Event = Literal["hang", "resumed", "died", "slower"]

NOTICES_MAX = 10  # of a run: a job that hangs and goes on all night needs no more to be looked at
TEXT_CHARS = 1000
_HANGS, _DEATH, _SLOWDOWN = "RUN001", "RUN002", "RUN003"
_SLOWER_FROM = ("critical", "high", "medium")  # less, and steps that merely have more work, wake nobody
_SINCE: dict[Event, str] = {"hang": "since", "resumed": "at", "died": "at", "slower": "since"}
_INTERRUPTED = 128 + signal.SIGINT
_GONE_ON_S = 120.0  # a job that ends so long after a rank's death went on without it, or was restarted: its end is news
# A change point moves a little with each further step; this far apart are two slowdowns.
_APART_STEPS, _APART_SHARE = 100, 0.2


@dataclass(frozen=True, slots=True)
class Notice:
    """`what` and `place` are as the report has them; `since_unix_s` is None where only a step is known."""

    event: Event
    what: str
    rule: str = ""
    ranks: tuple[int, ...] = ()
    place: Where | None = None
    since_unix_s: float | None = None
    since_step: int | None = None


@dataclass(slots=True)
class NoticeBook:
    """What has been told of one run. A notice counts as told once the caller says so."""

    count: int = 0
    _hangs: bool = False
    _death_unix_s: float | None = None
    _slow_steps: list[int] = field(default_factory=list)

    def news(self, reading: RunReading) -> list[Notice]:
        """The notices of this reading that have not been told yet, the most urgent first."""
        found = [self._death(reading), self._hang(reading), self._slowdown(reading)]
        return [notice for notice in found if notice is not None][: NOTICES_MAX - self.count]

    def told(self, notice: Notice, reading: RunReading) -> None:
        self.count += 1
        match notice.event:
            case "hang" | "resumed":
                self._hangs = notice.event == "hang"
            case "died":
                self._death_unix_s = reading.at_unix_s if reading.report.job.running else math.inf
            case "slower":
                self._slow_steps.append(notice.since_step or 0)

    def _hang(self, reading: RunReading) -> Notice | None:
        if not reading.report.job.running:
            return None
        finding = _finding(reading.report, _HANGS)
        hangs = finding is not None and (finding.fatal or finding.urgent)
        if finding is not None and hangs and not self._hangs:
            stalled = next((e.value for e in finding.evidence if e.metric == "stalled"), None)
            since_s = reading.at_unix_s - stalled if isinstance(stalled, (int, float)) else None
            return _of(finding, "hang", reading, since_s)
        if self._hangs and not hangs:
            return Notice("resumed", "The job goes on", since_unix_s=reading.at_unix_s)
        return None

    def _death(self, reading: RunReading) -> Notice | None:
        """A rank's death as soon as it is known, else the end of the job; both together are one event."""
        job, finding = reading.report.job, _finding(reading.report, _DEATH)
        end_unix_s = reading.started_unix_s + job.duration_s
        if self._death_unix_s is not None and (job.running or end_unix_s - self._death_unix_s < _GONE_ON_S):
            return None
        if finding is not None and finding.fatal and self._death_unix_s is None:
            return _of(finding, "died", reading, None if job.running else end_unix_s)
        ended_badly = not job.running and (job.exit_signal or job.exit_code)
        by_hand = job.exit_signal == "SIGINT" or job.exit_code in (_INTERRUPTED, -signal.SIGINT)
        if not ended_badly or by_hand:
            return None
        return Notice("died", f"The job ended: {phrases.ending(job)}", since_unix_s=end_unix_s)

    def _slowdown(self, reading: RunReading) -> Notice | None:
        finding = _finding(reading.report, _SLOWDOWN)
        if finding is None or finding.severity not in _SLOWER_FROM or not reading.report.job.running:
            return None
        step = finding.scope.since_step or 0
        if any(abs(step - told) <= _APART_STEPS + _APART_SHARE * told for told in self._slow_steps):
            return None
        return _of(finding, "slower", reading, None)


def line(notice: Notice, reading: RunReading, run_folder: str) -> str:
    """One line: which job and host, what, since when, and the command that shows more."""
    job = reading.report.job
    who = f"{job.name or reading.run}{f' on {reading.host}' if reading.host else ''}"
    what = f"{notice.what} ({notice.rule})" if notice.rule else notice.what
    place = f"{notice.place.file}:{notice.place.line}" if notice.place is not None else ""
    parts = [
        f"{who}: {what}",
        "" if place in what else f"at {place}",
        f"{_SINCE[notice.event]} {_clock(notice.since_unix_s)}" if notice.since_unix_s is not None else "",
        f"rn50-advisor {'watch' if job.running else 'report'} {shlex.quote(run_folder)}",
    ]
    return inert_text.one_line(" · ".join(part for part in parts if part), TEXT_CHARS)


def document(notice: Notice, reading: RunReading, run_folder: str) -> dict[str, Any]:
    """The notice for programs; `text` is the line for people."""
    return {
        "text": line(notice, reading, run_folder),
        "event": notice.event,
        "run": reading.run,
        "name": reading.report.job.name,
        "host": reading.host,
        "rule": notice.rule or None,
        "title": inert_text.one_line(notice.what),
        "ranks": list(notice.ranks),
        "place": {"file": notice.place.file, "line": notice.place.line} if notice.place is not None else None,
        "since_unix_s": notice.since_unix_s,
        "since_step": notice.since_step,
        "folder": run_folder,
    }


def _of(finding: Finding, event: Event, reading: RunReading, since_unix_s: float | None) -> Notice:
    report = reading.report
    where = next((fix.where for fix in finding.fixes if fix.where is not None), None)
    if where is not None:
        where = Where(phrases.from_its_folder(report, where.file), where.line)
    title = phrases.from_its_folder(report, finding.title)
    return Notice(event, title, finding.rule, finding.scope.ranks, where, since_unix_s, finding.scope.since_step)


def _finding(report: Report, rule: str) -> Finding | None:
    return next((finding for finding in report.findings if finding.rule == rule), None)


def _clock(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, timezone.utc):%H:%M:%S} UTC"
