"""Draws `rules/causes.py` for docs/causes.md: as Mermaid charts, which GitHub draws, and as SVG for the site, which needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rn50_advisor.rules.causes import CAUSES, Cause
from rn50_advisor.rules.registry import all_rules

_ABOUT = """# What explains what

Which rule's finding is the cause of which other's, drawn from `rules/causes.py`; a dotted line has a condition. Two findings are linked
where both fired, on a rank in common, and the cause costs a quarter of its consequence at least. Of several causes the costliest counts.
"""
_ROW, _BOX, _GAP = 30, 330, 160  # height of a row, width of a box and between the columns, in px


def document(*, drawn: bool = False) -> str:
    """`drawn`: with pictures and the conditions as lists, for the site."""
    names = {rule.id: rule.name for rule in all_rules()}
    parts = [_ABOUT]
    for title, causes in CAUSES.items():
        body = (
            f"{picture(causes, names)}\n{conditions(causes)}" if drawn else f"```mermaid\n{chart(causes, names)}\n```\n"
        )
        parts.append(f"## {title}\n\n{body}")
    return "\n".join(parts)


def chart(causes: Sequence[Cause], names: Mapping[str, str]) -> str:
    drawn = sorted({rule for cause in causes for rule in (*cause.rules, *cause.explains)})
    nodes = [f'    {rule}["{rule} {names[rule]}"]' for rule in drawn]
    lines = [f"    {' & '.join(cause.rules)} {_arrow(cause)} {' & '.join(cause.explains)}" for cause in causes]
    return "\n".join(["flowchart LR", *nodes, *lines])


def _arrow(cause: Cause) -> str:
    return f'-.->|"{cause.words}"|' if cause.words else "-->"


def picture(causes: Sequence[Cause], names: Mapping[str, str]) -> str:
    """Causes on the left, consequences on the right, as one line of SVG; a rule that is both stands twice. Boxes link to the rules."""
    left = sorted({rule for cause in causes for rule in cause.rules})
    right = sorted({rule for cause in causes for rule in cause.explains})
    height, width = max(len(left), len(right)) * _ROW, 2 * _BOX + _GAP
    lines = []
    for cause in causes:
        dashes = ' stroke-dasharray="4 4"' if cause.words else ""
        for start in cause.rules:
            for end in cause.explains:
                y, to = (_y(rows, rule, height) for rows, rule in ((left, start), (right, end)))
                bend = f"C{_BOX + _GAP / 2:g} {y:g} {_BOX + _GAP / 2:g} {to:g} {_BOX + _GAP} {to:g}"
                lines.append(f'<path d="M{_BOX} {y:g}{bend}"{dashes}><title>{start} explains {end}</title></path>')
    boxes = [_box(0, _y(left, rule, height), rule, names[rule]) for rule in left]
    boxes += [_box(_BOX + _GAP, _y(right, rule, height), rule, names[rule]) for rule in right]
    svg = f'<svg viewBox="0 0 {width} {height}" width="{width}" fill="none" stroke="currentColor" font-size="12">'
    return f'<div style="overflow-x: auto">{svg}{"".join([*lines, *boxes])}</svg></div>\n'


def _y(rows: Sequence[str], rule: str, height: int) -> float:
    return (rows.index(rule) + 0.5) * height / len(rows)


def _box(x: int, y: float, rule: str, name: str) -> str:
    text = f'<text x="{x + 8}" y="{y + 4:g}" fill="currentColor" stroke="none">{rule} {escape(name)}</text>'
    frame = f'<rect x="{x + 0.5}" y="{y - 11:g}" width="{_BOX - 1}" height="22" rx="4" stroke-opacity="0.4"/>'
    return f'<a href="rules/{rule}.html">{frame}{text}</a>'


def conditions(causes: Sequence[Cause]) -> str:
    """The dotted lines, one a line."""
    lines = [f"- {', '.join(c.rules)} → {', '.join(c.explains)}: {c.words}" for c in causes if c.words]
    return "\n".join([*lines, ""]) if lines else ""
