"""The comparison as text for terminals, pipes and log files, eighty columns wide."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.comparison import Change, Comparison, Pair
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.report import inert_text, styled_lines
from rn50_advisor.advisor.report.compared import wording
from rn50_advisor.advisor.report.styled_lines import Line, Style

WIDTH = 80
FACTS_SHOWN = 30
_NAME_MIN = 12
_STYLE: dict[Change, Style] = {"improved": "good", "regressed": "bad", "same": "", "unknown": "warn"}


def render(comparison: Comparison) -> str:
    return styled_lines.plain(document(comparison))


def document(comparison: Comparison) -> list[Line]:
    out: list[Line] = []
    for pair in comparison.pairs:
        out += _verdict(comparison, pair)
    if told := wording.gate(comparison):
        failed = comparison.gate is not None and (comparison.gate.failed or comparison.gate.unjudged)
        out += _wrapped("limit  ", told, "bad" if failed else "good", indent=0)
    out += [[], *_runs(comparison)]
    for pair in comparison.pairs:
        out += _details(comparison, pair)
    return [*out, [], *_wrapped("", comparison.method.basis, "dim")]


def _wrapped(label: str, text: str, style: Style = "", *, indent: int = 2, label_style: Style = "dim") -> list[Line]:
    return styled_lines.wrapped(label, text, style, indent=indent, label_style=label_style, width=WIDTH)


def _verdict(comparison: Comparison, pair: Pair) -> list[Line]:
    word = wording.change_word(pair.change)
    head = _wrapped(f"{word}: ", wording.headline(comparison, pair), "title", indent=0, label_style=_STYLE[pair.change])
    out = [*head, *_wrapped("why    ", pair.why)]
    for note in pair.notes:
        out += _wrapped("note   ", note)
    return out


def _runs(comparison: Comparison) -> list[Line]:
    hidden = () if wording.scaled(comparison) else (wording.RUN_COLUMNS.index("efficiency"),)
    rows = [[*wording.RUN_COLUMNS], *(wording.run_row(run) for run in comparison.runs)]
    table = [
        [inert_text.one_line(cell, WIDTH) for place, cell in enumerate(row) if place not in hidden] for row in rows
    ]
    others = [max(map(len, column)) + 2 for column in list(zip(*table, strict=True))[1:]]
    room = max(_NAME_MIN, WIDTH - 2 - sum(others))
    # names begin with a time and mostly differ at their end
    table = [[fmt.shorten_path(name, room), *cells] for name, *cells in table]
    return styled_lines.table(table[0], table[1:])


def _details(comparison: Comparison, pair: Pair) -> list[Line]:
    several = len(comparison.pairs) > 1
    parts = [_phases(pair), _facts(pair), _findings(pair)]
    title = f"{comparison.runs[pair.other].name} against {comparison.runs[pair.base].name}"
    out: list[Line] = [[], *_wrapped("", title, "title", indent=0)] if several and any(parts) else []
    for part in parts:
        if part:
            out += [[], *part]
    return out


def _phases(pair: Pair) -> list[Line]:
    if not pair.phases:
        return []
    head = ["phase of a step", "before", "after", "change", "interval"]
    return [
        [("WHERE A STEP'S TIME WENT", "title")],
        *styled_lines.table(head, [wording.phase_row(delta) for delta in pair.phases]),
        *_wrapped("", "in brackets: a change that may be none", "dim"),
    ]


def _facts(pair: Pair) -> list[Line]:
    if not pair.facts:
        return []
    out: list[Line] = [[("WHAT IS DIFFERENT", "title")]]
    for change in pair.facts[:FACTS_SHOWN]:
        out += _wrapped(f"{change.group}  ".ljust(13), wording.fact(change))
    if len(pair.facts) > FACTS_SHOWN:
        out += _wrapped("", f"{len(pair.facts) - FACTS_SHOWN} more are in the JSON", "dim")
    return out


def _findings(pair: Pair) -> list[Line]:
    if not pair.findings:
        return []
    out: list[Line] = [[("FINDINGS", "title")]]
    for change in pair.findings:
        out += _wrapped("", wording.finding(change))
    return out
