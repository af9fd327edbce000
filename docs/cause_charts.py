"""Draws `rules/causes.py` as Mermaid charts, for docs/causes.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rn50_advisor.rules.causes import CAUSES, Cause
from rn50_advisor.rules.registry import all_rules

_ABOUT = """# What explains what

Which rule's finding is the cause of which other's, drawn from `rules/causes.py`; a dotted line has a condition. Two findings are linked
where both fired, on a rank in common, and the cause costs a quarter of its consequence at least. Of several causes the costliest counts.
"""


def document() -> str:
    names = {rule.id: rule.name for rule in all_rules()}
    charts = [f"## {title}\n\n```mermaid\n{chart(causes, names)}\n```\n" for title, causes in CAUSES.items()]
    return "\n".join([_ABOUT, *charts])


def chart(causes: Sequence[Cause], names: Mapping[str, str]) -> str:
    drawn = sorted({rule for cause in causes for rule in (*cause.rules, *cause.explains)})
    nodes = [f'    {rule}["{rule} {names[rule]}"]' for rule in drawn]
    lines = [f"    {' & '.join(cause.rules)} {_arrow(cause)} {' & '.join(cause.explains)}" for cause in causes]
    return "\n".join(["flowchart LR", *nodes, *lines])


def _arrow(cause: Cause) -> str:
    return f'-.->|"{cause.words}"|' if cause.words else "-->"
