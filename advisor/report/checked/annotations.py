"""Findings at their lines, as CI services take them: workflow commands of GitHub, a code quality report of GitLab."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.documents.comparison import Comparison
from rn50_advisor.advisor.model.findings import Finding, Fix, Severity, Where
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording import evidence_words
from rn50_advisor.advisor.report import inert_text, phrases
from rn50_advisor.advisor.report.compared import wording

Level = Literal["error", "warning", "notice"]
Placed = Callable[[Where], "Where | None"]  # the place within the repository; None: outside of it

SHOWN = 10  # annotations of each level that GitHub takes from one step
TEXT_CHARS = 2000
_LEVELS: dict[Severity, Level] = {"critical": "warning", "high": "warning", "medium": "warning"}
_QUALITY = {"critical": "critical", "high": "major", "medium": "minor", "low": "info", "info": "info"}


@dataclass(frozen=True, slots=True)
class Annotation:
    """`where` is relative to the repository; None: no line of it is known to be the cause."""

    level: Level
    title: str
    text: str
    rule: str = ""
    quality: str = "info"  # GitLab's word for the severity
    where: Where | None = None


def annotate(report: Report, comparison: Comparison | None, placed: Placed) -> list[Annotation]:
    """One for a run that is slower than allowed, then one for each root finding, in the report's order."""
    slower = wording.gate(comparison) if comparison and comparison.gate and comparison.gate.failed else ""
    found = [Annotation("error", "Training became slower", _regression(comparison, slower))] if slower else []
    return [*found, *(_of_finding(report, finding, placed) for finding in phrases.root_findings(report))]


def workflow_commands(made: Sequence[Annotation]) -> list[str]:
    """Lines that GitHub's runner turns into annotations. Nothing in a text can end its command or start another."""
    lines = []
    for level in ("error", "warning", "notice"):
        for one in [one for one in made if one.level == level][:SHOWN]:
            place = (
                {"file": inert_text.one_line(one.where.file, TEXT_CHARS), "line": str(one.where.line)}
                if one.where
                else {}
            )
            about = ",".join(f"{key}={_property(value)}" for key, value in {**place, "title": one.title}.items())
            lines.append(f"::{level} {about}::{_data(one.text)}")
    return lines


def code_quality(made: Sequence[Annotation]) -> list[dict[str, Any]]:
    """GitLab's code quality report. It has no place for a finding without a line.

    The fingerprint leaves the line out, so that a finding whose line has moved is still the same one.
    """
    return [
        {
            "description": inert_text.one_line(f"{one.title}: {one.text}", TEXT_CHARS),
            "check_name": one.rule,
            "fingerprint": hashlib.sha256(f"{one.rule}\0{one.where.file}".encode()).hexdigest()[:32],
            "severity": one.quality,
            "location": {"path": one.where.file, "lines": {"begin": one.where.line}},
        }
        for one in made
        if one.where is not None and one.rule
    ]


def said(report: Report, text: str) -> str:
    """The text with paths as one types them in the job's folder."""
    return phrases.from_its_folder(report, text)


def reasons(finding: Finding) -> str:
    """The first two pieces of evidence that have a value."""
    pieces = [evidence_words.sentence(each) for each in finding.evidence if each.value is not None]
    return "; ".join(pieces[:2])


def first_place(finding: Finding, placed: Placed) -> Where | None:
    """The first line within the repository that a fix would change."""
    places = (placed(fix.where) for fix in finding.fixes if fix.where is not None)
    return next((place for place in places if place is not None), None)


def _of_finding(report: Report, finding: Finding, placed: Placed) -> Annotation:
    fixes = [f"fix: {_of_fix(fix)}" for fix in finding.fixes[:1]]
    gain = phrases.gain(finding.saving)
    texts = [reasons(finding), *fixes, f"gain: {gain}" if gain else ""]
    text = "\n".join(said(report, text) for text in texts if text)
    return Annotation(
        _LEVELS.get(finding.severity, "notice"),
        inert_text.one_line(f"{finding.title} ({finding.rule})"),
        inert_text.block(text or phrases.cost(finding) or finding.severity, TEXT_CHARS),
        finding.rule,
        "blocker" if finding.fatal else _QUALITY[finding.severity],
        first_place(finding, placed),
    )


def _of_fix(fix: Fix) -> str:
    return f"{fix.title}{phrases.option(fix)}"


def _regression(comparison: Comparison | None, slower: str) -> str:
    assert comparison is not None and comparison.gate is not None
    pairs = [pair for pair in comparison.pairs if pair.other in comparison.gate.failed]
    whys = [f"{wording.headline(comparison, pair)}: {pair.why}" for pair in pairs]
    return inert_text.block("\n".join([*whys, slower]), TEXT_CHARS)


def _data(text: str) -> str:
    return re.sub("[%\r\n]", lambda found: f"%{ord(found[0]):02X}", text)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
