"""`explain` and `rules`: show what the rules look for, from their docstrings."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import click

from rn50_advisor.advisor.commands.completion import FAMILIES, complete_family, complete_rule
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.findings import Severity
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.advisor.model.wording.quantities import metric_list
from rn50_advisor.advisor.report.styled_lines import WIDTH, Line, paint, wrapped

if TYPE_CHECKING:
    from rn50_advisor.rules.rule import Rule

_BY_COST = "by cost"
_SEVERITY_WIDTH = len("critical–medium") + 2
_KEPT = re.compile(r"\s*[-*] |\s{2,}\S")
_CODE = re.compile(r"(`+)(.+?)\1")


class RuleListing(TypedDict):
    """A rule in the list for programs. `severities`: empty if they follow from the cost; `needs`: names of measurements."""

    id: str
    name: str
    family: str
    severities: list[Severity]
    needs: list[str]


@click.command
@click.argument("rule", required=False, shell_complete=complete_rule)
def explain(rule: str | None) -> None:
    """Explain a RULE such as DAT003: what it does, why it is slow, how to fix it, when it is wrong. Without RULE: list them.

    \b
    rn50-advisor explain DAT003
    """
    from rn50_advisor.rules.registry import all_rules

    every = all_rules()
    if rule is None:
        paint([*listing(every), [], severity_note(), [("rn50-advisor explain RULE says more.", "dim")]], sys.stdout)
        return
    paint(explanation(rule_named(rule, every)), sys.stdout)


def rule_named(asked: str, every: Sequence[Rule]) -> Rule:
    """Raises UsageError, with the rules most like it."""
    found = next((each for each in every if each.id == asked.strip().upper()), None)
    if found is None:
        near = did_you_mean(asked, (each.id for each in every))
        raise UsageError(f"no rule {asked!r}", near or "rn50-advisor rules lists them")
    return found


@click.command
@click.argument("family", required=False, shell_complete=complete_family)
@click.option("--family", "named", metavar="FAMILY", help="The same as FAMILY.")
@click.option(
    "--needs", is_flag=True, help='Show the measurements each needs; without one of them it answers "not measured".'
)
@click.option(
    "--calibration", is_flag=True, help="Show how well each has foretold its gains in this user's trials (see try)."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def rules(*, family: str | None, named: str | None, needs: bool, calibration: bool, as_json: bool) -> None:
    """List the rules and the severity of their findings. FAMILY: the letters of their ids, or a word of what these are about.

    \b
    rn50-advisor rules DAT
    rn50-advisor rules communication
    """
    from rn50_advisor.rules.registry import all_rules

    every = of_family(all_rules(), family or named or "")
    if calibration:
        show_calibration(every if family or named else None, as_json=as_json)
    elif as_json:
        rows: list[RuleListing] = [
            {
                "id": r.id,
                "name": r.name,
                "family": _letters(r),
                "severities": list(r.severities),
                "needs": sorted(r.needs),
            }
            for r in every
        ]
        click.echo(json.dumps(rows, indent=2))
    else:
        paint(
            [*listing(every, needs=needs), *([[], severity_note()] if sys.stdout.isatty() and not needs else [])],
            sys.stdout,
        )


def show_calibration(asked: Sequence[Rule] | None, *, as_json: bool) -> None:
    """How well these rules have foretold in the trials that are kept. `asked`: None for all, also those that are not installed now."""
    from rn50_advisor.advisor.model.trials import rule_records
    from rn50_advisor.advisor.report.trials.history_text import calibration_lines
    from rn50_advisor.advisor.store.trial_history import history_file, read

    file = history_file(os.environ)
    past = read(file) if file else []
    if asked is not None:
        names = {rule.id for rule in asked}
        past = [trial for trial in past if trial.rule in names]
    if as_json:
        click.echo(json.dumps([record.as_json() for record in rule_records(past)], indent=2))
    else:
        paint(calibration_lines(past), sys.stdout)


def of_family(every: Sequence[Rule], asked: str) -> list[Rule]:
    """The rules whose ids begin so, or whose family's name has a word that does; all for "". Raises UsageError if there are none."""
    word = asked.strip().casefold()
    found = [rule for rule in every if rule.id.casefold().startswith(word) or _is_named(_letters(rule), word)]
    if not found:
        letters = dict.fromkeys(_letters(rule) for rule in every)
        words = [word for name in FAMILIES.values() for word in name.split()]
        known = ", ".join(f"{each} ({FAMILIES[each]})" if each in FAMILIES else each for each in letters)
        family = next((each for each in letters if word.startswith(each.casefold())), None)
        hint = f"rn50-advisor rules {family} lists this family" if family else did_you_mean(asked, [*letters, *words])
        raise UsageError(f"no rule or family {asked!r}", hint or f"families: {known}")
    return found


def _letters(rule: Rule) -> str:
    return rule.id.rstrip("0123456789")


def _is_named(letters: str, word: str) -> bool:
    return any(each.casefold().startswith(word) for each in FAMILIES.get(letters, "").split())


def listing(every: Sequence[Rule], *, needs: bool = False) -> list[Line]:
    """A line for each rule: id, the severity of its findings, name; `needs`: the measurements instead of the severity."""
    width = max((len(rule.name) for rule in every), default=0)
    out: list[Line] = []
    for rule in every:
        if needs:
            label = f"{rule.id}  {rule.name.ljust(width)}  "
            out += wrapped(label, metric_list(sorted(rule.needs)) or "–", "dim", indent=0, label_style="")
        else:
            out.append(
                [(f"{rule.id}  ", "title"), (f"{severity_words(rule):<{_SEVERITY_WIDTH}}", "dim"), (rule.name, "")]
            )
    return out


def severity_words(rule: Rule) -> str:
    """`critical`, `medium–low`, or `by cost`: as large as the share of the step that a finding costs."""
    worst, *others = rule.severities or (_BY_COST,)
    return f"{worst}–{others[-1]}" if others else worst


def severity_note() -> Line:
    """What `by cost` means, for people."""
    from rn50_advisor.rules.rule import SEVERITY_SHARES

    shares = ", ".join(f"{name} from {100 * share:.0f} %" for share, name in SEVERITY_SHARES)
    return [(f"{_BY_COST}: {shares} of the step", "dim")]


def explanation(rule: Rule) -> list[Line]:
    """Returns the rule's docstring, rewrapped under its headings, then its thresholds, needs and consequences."""
    from rn50_advisor.rules.rule import sections

    out: list[Line] = [[(f"{rule.id}  ", "title"), (rule.name, "title")]]
    for number, (heading, text) in enumerate(sections(rule.doc)):
        if number == 0 and _same(text, rule.name):
            continue
        out.append([])
        if heading:
            out.append([(heading, "title")])
        out += _paragraph(text[:1].upper() + text[1:])
    out += [
        [],
        [("Severity", "title")],
        [(f"  {severity_words(rule)}", "")] if rule.severities else [("  ", ""), *severity_note()],
    ]
    if rule.thresholds:
        out += [[], [("Thresholds", "title")]]
        for name, threshold in rule.thresholds.items():
            out += wrapped(f"{name} = {threshold.value:g}  ", threshold.why, "dim", label_style="code")
    if rule.needs:
        out += [[], [("Needs", "title")], *wrapped("", metric_list(rule.needs))]
    explained = _explained(rule)
    if explained:
        out += [[], [("Explains, where both fire", "title")]]
        out += [line for words in explained for line in wrapped("", words)]
    return out


def _explained(rule: Rule) -> list[str]:
    """Returns the rules that it always explains, then those that it explains under a condition: `COM001, where …`."""
    from rn50_advisor.rules.causes import consequences_of

    found = {"": rule.explains} if rule.explains else consequences_of(rule.id)
    return [", ".join([*others, *([words] if words else [])]) for words, others in found.items()]


def _same(paragraph: str, name: str) -> bool:
    return paragraph.strip().rstrip(".").casefold() == name.strip().rstrip(".").casefold()


def _paragraph(text: str) -> list[Line]:
    """Wraps a paragraph; leaves the lines of a list or of code as they are."""
    lines = text.split("\n")
    if len(lines) > 1 and any(_KEPT.match(line) for line in lines):
        return [_with_code(f"  {line}") for line in lines]
    return [
        _with_code(line)
        for line in textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="  ", subsequent_indent="  ")
    ]


def _with_code(line: str) -> Line:
    parts: Line = []
    end = 0
    for match in _CODE.finditer(line):
        parts += [(line[end : match.start()], ""), (match[0], "code")]
        end = match.end()
    return [*parts, (line[end:], "")]
