"""What is sent of a run to any tracker: curves by step, the verdict in short, the findings as a table, the HTML page."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from rn50_advisor.advisor.model.history import Curve, History, resampled
from rn50_advisor.advisor.model.report import PHASES, Report
from rn50_advisor.advisor.report import phrases, render
from rn50_advisor.advisor.report.inert_text import one_line
from rn50_advisor.advisor.store.secrets.masking import redact_text

STEP = "step"
SAMPLES, STEP_SECONDS, WAIT_RATIO = "samples_per_second", "step_seconds", "input_wait_ratio"
PHASE_SECONDS = "step_phase_seconds/"
COLUMNS = ("rule", "finding", "severity", "explained by", "speed-up", "fix", "place")
_CELL_MAX = 500  # characters
_WAITS = ("input_wait", "input_wait.epoch_start")


@dataclass(frozen=True, slots=True)
class Point:
    """The means of one slice of the run. `step`: optimizer updates that a rank had made at its end."""

    step: int
    unix_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Parcel:
    """`key` is the same whenever this run is sent. `facts`: the verdict, by name."""

    name: str
    key: str
    points: tuple[Point, ...]
    facts: Mapping[str, str | float]
    tags: tuple[str, ...]
    findings: tuple[tuple[str, ...], ...]
    summary: str  # Markdown
    page: str  # HTML
    exit_code: int = 0  # of the job; 0 if it is not known
    running: bool = False  # the job goes on

    @property
    def last_step(self) -> int:
        return self.points[-1].step if self.points else -1


def parcel_of(report: Report, *, started_unix_s: float, identity: str) -> Parcel:
    """`identity`: what tells this run from all others, wherever its file lies."""
    verdict = report.verdict
    return Parcel(
        name=_text(report.job.name or "run"),
        key=hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:16],
        points=points_of(report, started_unix_s),
        facts=_facts(report),
        tags=tuple(tag for tag in (verdict.state, verdict.rule) if tag),
        findings=tuple(_rows(report)),
        summary=_summary(report),
        page=render(report, "html"),
        exit_code=report.job.exit_code or (1 if report.job.exit_signal else 0),
        running=report.job.running,
    )


def points_of(report: Report, started_unix_s: float) -> tuple[Point, ...]:
    """The curves of the report's plots, at the steps at which its slices end; a slice in which no step ended has none."""
    history = report.history
    if history is None or not history.steps:
        return ()
    rates = resampled(tuple(point.samples_per_s for point in report.timeline), history.slices)
    done = list(accumulate(history.steps[min(history.steps)]))
    points: list[Point] = []
    for at, count in enumerate(done):
        values = _values(history, at, rates)
        # numbered from 0; the sum of a step's shares may miss 1 by a rounding error
        step = math.floor(count + 1e-6) - 1
        if values and step >= 0 and (not points or step > points[-1].step):
            points.append(Point(step, started_unix_s + history.start_s + (at + 1) * history.slice_s, values))
    return tuple(points)


def _values(history: History, at: int, rates: Curve) -> dict[str, float]:
    names = [*PHASES, *(name for name in history.phases if name not in PHASES)]
    phases = {name: _finite(history.phases[name][at]) for name in names if name in history.phases}
    known = {name: value for name, value in phases.items() if value is not None}
    if not known:
        return {}
    step_s = sum(known.values())
    values = {STEP_SECONDS: step_s}
    rate = _finite(rates[at]) if at < len(rates) else None
    if rate is not None:
        values[SAMPLES] = rate
    waits = [known[name] for name in _WAITS if name in known]
    if waits and step_s > 0:
        values[WAIT_RATIO] = sum(waits) / step_s
    # a dot would nest names in some trackers
    return values | {PHASE_SECONDS + name.replace(".", "_"): value for name, value in known.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _facts(report: Report) -> dict[str, str | float]:
    verdict, finding = report.verdict, phrases.verdict_finding(report)
    facts: dict[str, str | float] = {
        "state": verdict.state,
        "verdict": _text(verdict.title),
        "steps": report.step_time.steps,
    }
    if verdict.rule:
        facts["rule"] = verdict.rule
    saving = finding.saving if finding is not None else None
    if saving is not None and saving.is_gain:
        facts["gain"] = phrases.gain(saving)
        facts |= {"speedup_low": saving.speedup[0], "speedup_high": saving.speedup[1]}
        if saving.likely is not None and not saving.is_vague:
            facts["speedup_likely"] = saving.likely
    for name, value in (("step_seconds", report.step_time.median_s), (SAMPLES, report.throughput.samples_per_s)):
        if _finite(value) is not None and value is not None:
            facts[name] = value
    return facts


def _rows(report: Report) -> list[tuple[str, ...]]:
    rows = []
    for finding in report.findings:
        fix = finding.fixes[0] if finding.fixes else None
        speedup = " ".join(phrases.speedup(finding.saving)).strip() if finding.saving and finding.saving.is_gain else ""
        cells = (
            finding.rule,
            finding.title,
            finding.severity,
            finding.explained_by or "",
            speedup,
            f"{fix.title}{phrases.option(fix)}" if fix else "",
            phrases.from_its_folder(report, phrases.place(fix)) if fix else "",
        )
        rows.append(tuple(_text(cell) for cell in cells))
    return rows


def _summary(report: Report) -> str:
    """The verdict, and the findings as a table."""
    lines = [
        f"**{_escaped(_text(report.verdict.title))}**",
        "",
        _escaped(_text(phrases.from_its_folder(report, report.verdict.summary))),
        "",
    ]
    rows = _rows(report)
    if rows:
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        lines += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines).strip() + "\n"


def _escaped(text: str) -> str:
    """As text in Markdown: a job's own names may hold its signs, or HTML."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


def _text(text: str) -> str:
    return one_line(redact_text(text), _CELL_MAX)
