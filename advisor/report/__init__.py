"""Shows one `Report` as text, JSON, Markdown or HTML. Computes nothing new."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypedDict

from rn50_advisor.advisor.model.efficiency import efficiency
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.opportunities import split, time_lost
from rn50_advisor.advisor.model.report import Report, plain_values
from rn50_advisor.advisor.report import phrases
from rn50_advisor.advisor.report.document import MakeDocument

# Each is a module of this package, and one for documents; jinja2 is loaded only for HTML, rich only for colour.
FORMATS = ("text", "json", "md", "html")
SUFFIXES = {".txt": "text", ".json": "json", ".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}
TRACE_SUFFIXES = (".perfetto.json", ".perfetto.json.gz")  # of a run as a trace: `perfetto`
_MODULES = {"text": "text", "md": "markdown", "html": "html"}
DATA_LIMIT = 150_000  # characters of JSON that a page holds


class _Score(TypedDict):
    """The training efficiency score, 0 to 100; null with the reason in `unknown`."""

    score: int | None
    unknown: str | None


class ReportScore(_Score, total=False):
    """The training efficiency score, 0 to 100; null with the reason in `unknown`. Seconds are per step, and there if the score is."""

    useful_s: float
    step_s: float
    lost_to: str | None


class ReportTimeLost(TypedDict):
    """Seconds that the verdict's finding has cost so far, of those that the run took; null with the reason in `unknown`."""

    seconds: float | None
    of_s: float
    gpu_hours: float | None
    rule: str | None
    unknown: str | None


class ReportOpportunity(TypedDict):
    """What a finding's fix saves. `finding`: its index among the findings."""

    rule: str
    finding: int
    saved_s_per_step: float
    saved_s: list[float]
    gpu_hours: list[float] | None


class BesideReport(TypedDict):
    """What a report's JSON has beside the report's own fields."""

    efficiency: ReportScore
    time_lost: ReportTimeLost
    opportunities: list[ReportOpportunity]


class Result(Protocol):
    """The result of a command: a contract for programs, with keys always in the same order."""

    def as_json(self) -> dict[str, Any]: ...


def render(report: Report, format: str) -> str:
    """The whole report in one of `FORMATS`; the text has no trailing blank lines and ends with one newline."""
    return rendered(report, format)


def as_json(report: Report) -> dict[str, Any]:
    """The report with its training efficiency score, the time lost and what each fix saves; null, and the reason, where not known."""
    found = efficiency(report)
    score: ReportScore = {"score": found.score, "unknown": found.unknown or None}
    if found.score is not None:
        score |= {"useful_s": found.useful_s, "step_s": found.step_s, "lost_to": found.lost_to or None}
    lost = time_lost(report)
    time: ReportTimeLost = {
        "seconds": lost.lost_s,
        "of_s": lost.run_s,
        "gpu_hours": lost.gpu_hours,
        "rule": lost.rule or None,
        "unknown": lost.unknown or None,
    }
    beside: BesideReport = {"efficiency": score, "time_lost": time, "opportunities": _opportunities(report)}
    return {**report.as_json(), **plain_values(beside)}


def _opportunities(report: Report) -> list[ReportOpportunity]:
    """As the HTML report orders them. `finding`: its index among the findings."""
    return [
        {
            "rule": one.finding.rule,
            "finding": report.findings.index(one.finding),
            "saved_s_per_step": one.saved_s,
            "saved_s": list(one.run_s),
            "gpu_hours": list(one.gpu_hours) if one.gpu_hours else None,
        }
        for one in split(report, phrases.root_findings(report))[0]
    ]


def _json(document: dict[str, Any]) -> str:
    """In plain ASCII, so that any locale and any bytes in file names survive."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def rendered(made: Result, format: str, document: MakeDocument | None = None) -> str:
    """`document` makes what people read of another result than a report. Raises UsageError on an unknown format."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", f"formats: {', '.join(FORMATS)}")
    text: str
    if format == "json":
        return _json(as_json(made) if isinstance(made, Report) else made.as_json())
    if document is None:
        text = import_module(f"{__name__}.{_MODULES[format]}").render(made)
    else:
        text = import_module(f"{__name__}.document_{_MODULES[format]}").render(document(made))
    return text.rstrip("\n") + "\n"


def format_of(path: str) -> str:
    """The format that a file name asks for. Raises UsageError on any other name."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"cannot tell the report's format from the name {Path(path).name!r}",
            f"end it with one of {', '.join(SUFFIXES)}",
        )
    return SUFFIXES[suffix]


def is_trace_name(path: str) -> bool:
    """True if a file name asks for a trace, which is made of the recording, too."""
    return path.lower().endswith(TRACE_SUFFIXES)


def write(report: Report, path: str) -> None:
    """Writes the report in the format that the name asks for. Raises OSError."""
    text = render(report, format_of(path))
    Path(path).write_text(text, encoding="utf-8", errors="replace")
