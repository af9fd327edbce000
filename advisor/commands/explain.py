"""`explain` and `rules`: what the rules look for, in their own words."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from advisor.core.errors import UsageError
from advisor.report.lines import Line, paint

if TYPE_CHECKING:
    from rules.registry import Rule

_HEADING = re.compile(r"^(#{1,6}\s+)?(?P<title>[^\s#*\-].*?):?$")
_CODE = re.compile(r"(`+)(.+?)\1")


@click.command
@click.argument("rule", required=False)
def explain(rule: str | None) -> None:
    """Explain a RULE such as DAT003: what it does, why it is slow, how to fix it, when it is wrong. Without RULE: list them.

    \b
    rn50-advisor explain DAT003
    """
    from rules.registry import all_rules

    every = all_rules()
    if rule is None:
        paint([*listing(every), [], [("rn50-advisor explain RULE tells more.", "dim")]], sys.stdout)
        return
    found = next((each for each in every if each.id == rule.strip().upper()), None)
    if found is None:
        near = difflib.get_close_matches(rule.upper(), [each.id for each in every], 3)
        raise UsageError(
            f"no rule {rule!r}", f"did you mean {', '.join(near)}?" if near else "rn50-advisor rules lists them"
        )
    paint(explanation(found), sys.stdout)


@click.command
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def rules(as_json: bool) -> None:
    """List the rules and the measurements each needs; without one of them it answers "not measured"."""
    from rules.registry import all_rules

    every = all_rules()
    if as_json:
        click.echo(json.dumps([{"id": r.id, "name": r.name, "needs": sorted(r.needs)} for r in every], indent=2))
    else:
        paint(listing(every, needs=True), sys.stdout)


def listing(every: Sequence[Rule], *, needs: bool = False) -> list[Line]:
    width = max((len(rule.name) for rule in every), default=0)
    out: list[Line] = []
    for rule in every:
        line: Line = [(f"{rule.id}  ", "title"), (rule.name.ljust(width) if needs else rule.name, "")]
        out.append([*line, (f"  {', '.join(sorted(rule.needs)) or '–'}", "dim")] if needs else line)
    return out


def explanation(rule: Rule) -> list[Line]:
    """The rule's docstring: headings bold, code coloured, everything else as its author wrote it."""
    out: list[Line] = [[(f"{rule.id}  {rule.name}", "title")], []]
    lines = rule.doc.strip().splitlines()
    for number, line in enumerate(lines):
        underline = number + 1 < len(lines) and re.fullmatch(r"\s*[-=~]{3,}\s*", lines[number + 1])
        alone = (number == 0 or not lines[number - 1].strip()) and line and not line[0].isspace()
        short = len(line) < 60 and not line.rstrip().endswith((".", ","))
        if re.fullmatch(r"[-=~]{3,}", line.strip()):
            continue
        if line.startswith("#") or underline or (alone and short and _HEADING.match(line)):
            out.append([(line.lstrip("# ").rstrip(), "title")])
        else:
            out.append(_with_code(line))
    return out


def _with_code(line: str) -> Line:
    parts: Line = []
    end = 0
    for match in _CODE.finditer(line):
        parts += [(line[end : match.start()], ""), (match[0], "code")]
        end = match.end()
    return [*parts, (line[end:], "")]
