"""The one comment on a change, as GitHub and GitLab show Markdown: comparison, verdict, and what to change."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from rn50_advisor.advisor.model.documents.comparison import Comparison
from rn50_advisor.advisor.model.findings import Finding, Fix
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import document_markdown, inert_text, phrases
from rn50_advisor.advisor.report.checked.annotations import Placed, reasons, said
from rn50_advisor.advisor.report.compared import document, wording

CHARS = 65_000  # of a comment; GitHub takes 65,536
_MARKER = "<!-- rn50-advisor ci: {} -->"  # hidden; finds the comment again
_ALSO = 6
_text, _code = inert_text.markdown, inert_text.markdown_code


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses on the CI service; empty where there are none. `source` ends before a path, `line` before a number."""

    run: str = ""
    source: str = ""
    pages: str = ""  # the folder of the HTML pages, as the service calls it


def marker(name: str) -> str:
    """The first line of the comment on this job; other jobs of the same change have comments of their own."""
    plain = re.sub(r"[^\w.+]+", "-", name, flags=re.ASCII).strip("-")[:80]
    if plain != name:  # in another script nothing may be left, and two names would share a comment
        plain = f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return _MARKER.format(plain)


def comment(name: str, report: Report, comparison: Comparison | None, *, links: Links, placed: Placed) -> str:
    """Ends with one newline. Details are left out if the whole would be too long."""
    parts = [
        marker(name),
        *(_compared(comparison) if comparison is not None else ["No earlier run to compare with yet."]),
        *_verdict(report, links, placed),
    ]
    details = _details(comparison) if comparison is not None else []
    last = _links(name, links)
    for chosen in ([*parts, *details, *last], [*parts, *last]):
        text = "\n\n".join(chosen) + "\n"
        if len(text) <= CHARS:
            return text
    return f"{text[: CHARS - 20]}\n\n…\n"


def _compared(comparison: Comparison) -> list[str]:
    parts = []
    for pair in comparison.pairs:
        parts.append(f"### {wording.change_word(pair.change)}: {_text(wording.headline(comparison, pair))}")
        parts += [_text(pair.why, 1000)] if pair.why else []
        parts += ["\n".join(f"- {_text(note)}" for note in pair.notes)] if pair.notes else []
    if limit := wording.gate(comparison):
        parts.append(f"**Limit:** {_text(limit)}")
    return parts


def _verdict(report: Report, links: Links, placed: Placed) -> list[str]:
    verdict, finding = report.verdict, phrases.verdict_finding(report)
    rule = f" {_code(verdict.rule)}" if verdict.rule else ""
    parts = [f"### {phrases.verdict_word(report)}: {_text(said(report, verdict.title))}{rule}"]
    why = (reasons(finding) if finding is not None else "") or verdict.summary
    why = why[:1].upper() + why[1:]
    parts += [_text(said(report, why), 1000)] if why else []
    if finding is not None:
        parts += _fix(report, finding, links, placed)
        parts += [f"**Gain:** {_text(gain)}"] if (gain := phrases.gain(finding.saving)) else []
    parts += [f"**Coverage:** {made}"] if (made := phrases.checks(report)) else []
    others = [each for each in phrases.root_findings(report) if each is not finding and each.severity != "info"]
    if others:
        listed = [f"{_text(each.title)} ({each.rule})" for each in others[:_ALSO]]
        more = [f"{len(others) - _ALSO} more"] if len(others) > _ALSO else []
        parts.append(f"**Also:** {'; '.join([*listed, *more])}")
    return parts


def _fix(report: Report, finding: Finding, links: Links, placed: Placed) -> list[str]:
    if not finding.fixes:
        return []
    fix = finding.fixes[0]
    parts = [
        f"**Fix:** {_place(report, fix, links, placed)}{_text(f'{fix.title}{phrases.option(fix)}')} ({fix.effort})"
    ]
    if fix.diff:
        parts.append(inert_text.markdown_diff(fix.diff))
    elif fix.change:
        parts.append(inert_text.markdown_block(fix.change, "python"))
    return parts


def _place(report: Report, fix: Fix, links: Links, placed: Placed) -> str:
    where = placed(fix.where) if fix.where is not None else None
    if where is None:
        return f"{_code(said(report, phrases.place(fix)))}: " if fix.where else ""
    shown = _code(f"{where.file}:{where.line}")
    return (
        f"[{shown}]({links.source}{quote(where.file, errors='surrogateescape')}#L{where.line}): "
        if links.source
        else f"{shown}: "
    )


def _details(comparison: Comparison) -> list[str]:
    whole = re.sub(r"(?m)^#", "###", document_markdown.render(document(comparison)))
    return [f"<details><summary>The comparison</summary>\n\n{whole}\n\n</details>"]


def _links(name: str, links: Links) -> list[str]:
    if not links.run:
        return []
    pages = f"; the pages are in {_text(links.pages)}" if links.pages else ""
    return [f"<sub>rn50-advisor, job {_text(name)}: [run and files]({links.run}){pages}</sub>"]
