"""The verdict in three lines: WHY with its evidence, FIX with what to type or change, GAIN with the likely value and its range."""

from __future__ import annotations

import posixpath
import re

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style

from rn50_advisor.advisor.model.findings import Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.check_words import is_preliminary
from rn50_advisor.advisor.model.wording.evidence_words import begun, sentence
from rn50_advisor.advisor.model.wording.gain_words import gain
from rn50_advisor.advisor.model.wording.quantities import counted, shorten_path
from rn50_advisor.advisor.tui.styles.drawing import Part, fit, harmless, line, muted

LABEL = 6  # cells of `GAIN  `
_EVIDENCE_SHOWN = 2
_PLACE_CELLS_MIN = 16
_ENDS = re.compile(r"[;.,] ")  # where a sentence may be left


def verdict_finding(report: Report) -> Finding | None:
    return next((f for f in report.findings if f.rule == report.verdict.rule), None)


def first_fix(finding: Finding | None) -> Fix | None:
    return finding.fixes[0] if finding is not None and finding.fixes else None


def why_line(report: Report, width: int) -> Content:
    return line(_label("WHY"), clipped(_why(report, verdict_finding(report), width - LABEL), width - LABEL))


def fix_line(report: Report, width: int) -> Content:
    """A click on the place opens it in an editor, one on an option copies it."""
    fix = first_fix(verdict_finding(report))
    if fix is None:
        return line(_label("FIX"), muted(clipped(_without_fix(report), width - LABEL)))
    room = width - LABEL
    parts: list[Part] = []
    if fix.typed:
        typed = clipped(", ".join(fix.typed), room)
        parts.append(_clickable(typed, "bold $text-primary", "copy_fix"))
        room -= cell_len(typed) + 2
    if fix.where and room >= _PLACE_CELLS_MIN:
        place = place_words(fix.where, _folder(report), max(room // 3, _PLACE_CELLS_MIN))
        parts += ["  " if parts else "", _clickable(place, "underline $text-primary", "edit_fix")]
        room -= cell_len(place) + 2
    title = clipped(fix.title, room) if room >= _PLACE_CELLS_MIN else ""
    if title:
        parts += ["  " if parts else "", (title, "" if fix.typed else "bold")]
    return line(_label("FIX"), *parts)


def gain_line(report: Report, width: int) -> Content:
    words = _gain(report, width - LABEL)
    text = clipped(words or _without_gain(report), width - LABEL)
    return line(_label("GAIN"), (text, "bold $text-success") if words else muted(text))


def place_words(where: Where, folder: str, width: int) -> str:
    """`train.py:111`: relative to the job's folder, else as many of the path's last parts as fit. The line number is always whole."""
    file = where.file
    if folder and file.startswith(folder.rstrip("/") + "/"):
        file = posixpath.relpath(file, folder)
    number = f":{where.line}"
    room = max(width - len(number), 1)
    ends = [f"…{file[at:]}" for at, character in enumerate(file) if character == "/" and at]
    fitting = [end for end in (file, *ends) if len(end) <= room]
    return harmless((fitting[0] if fitting else shorten_path(posixpath.basename(file), room)) + number)


def clipped(text: str, width: int) -> str:
    """The text in at most `width` cells, left at the end of a clause if that keeps half of the room, else within a word."""
    text = " ".join(harmless(text).split())
    if width <= 0 or cell_len(text) <= width:
        return text if width > 0 else ""
    ends = [found.start() for found in _ENDS.finditer(text) if cell_len(text[: found.start()]) + 2 <= width]
    if ends and cell_len(text[: ends[-1]]) * 2 >= width:
        return f"{text[: ends[-1]]} …"
    return fit(text, width).rstrip()


def _label(word: str) -> Part:
    return f" {word:<{LABEL - 1}}", "bold $foreground 62%"


def _clickable(text: str, style: str, action: str) -> Content:
    return Content.styled(harmless(text), style).stylize(Style.from_meta({"@click": f"app.{action}"}))


def _why(report: Report, finding: Finding | None, width: int) -> str:
    """The first pieces of evidence, the second one only where all of it fits; without a finding the verdict's own sentence."""
    told = [text for e in finding.evidence if (text := _told(e))] if finding is not None else []
    if finding is None or not told:
        return report.verdict.summary or report.verdict.title or "nothing is known yet"
    hosts = finding.scope.hosts if len(finding.scope.hosts) < len(report.nodes) else ()
    words = (f"on {', '.join(hosts)}: " if hosts else "") + told[0]
    for text in told[1:_EVIDENCE_SHOWN]:
        words += f"; {text}" if cell_len(f"{words}; {text}") <= width else ""
    return begun(words)


def _told(e: Evidence) -> str:
    return sentence(e) if e.note or e.value else ""


def _gain(report: Report, width: int) -> str:
    """The predicted speed-up, and as much more as there is room for; empty without a prediction."""
    finding = verdict_finding(report)
    if finding is None or finding.saving is None or finding.fatal:
        return ""
    return gain(finding.saving, width)


def _folder(report: Report) -> str:
    return str(report.environment.get("cwd") or "")


def _without_fix(report: Report) -> str:
    """Says why nothing is advised."""
    verdict, steps = report.verdict, report.step_time.steps
    if verdict_finding(report) is not None:
        return "no change is known that helps; see 2 Findings"
    if verdict.state == "failed":
        return "see the end of the job's output"
    if verdict.state == "healthy":
        minor = sum(f.severity != "info" for f in report.findings)
        none = "none so far" if is_preliminary(report) else "none needed"
        return f"{none}; {counted(minor, 'minor finding')}, see 2 Findings" if minor else none
    if report.job.running and steps == 0:
        return "none yet: no step has ended"
    unmeasured = any(row.state == "not_measured" for row in report.outcomes) or report.gaps
    return "none known; see 5 Checks for what was not measured" if unmeasured else "none known"


def _without_gain(report: Report) -> str:
    """Says why no speed-up is predicted."""
    if report.verdict.state == "failed":
        stands = "the job makes no progress" if report.job.running else "the job has ended"
        return f"no prediction: {stands}"
    if report.verdict.state == "healthy":
        return "none expected" if not is_preliminary(report) else "no prediction yet"
    return "no prediction yet" if report.job.running else "no prediction"
