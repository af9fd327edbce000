"""Writes what the documentation says of the rules, from the rules themselves: `make docs`.

A page for each rule and an index in docs/rules, what explains what, and what became of predictions. Rules that other distributions
offer are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from docs import cause_charts

from rn50_advisor import rules
from rn50_advisor.advisor.model.wording.quantities import counted, share
from rn50_advisor.advisor.verdict.likely_gain import ANY_RULE, CONFIDENCE, gain_errors
from rn50_advisor.rules.registry import all_rules
from rn50_advisor.rules.rule import Rule, sections

ROOT = Path(__file__).resolve().parents[1]
PAGES = Path("docs/rules")
CHARTS = Path("docs/causes.md")
PREDICTIONS = Path("docs/predictions.md")
_HOME = f"{rules.__name__}."
_EDITED = "<!-- Written by `make docs` from the rule; edit the rule instead. -->"

_ABOUT_PREDICTIONS = """\
A report says of each gain what is likely, and a range that is meant to hold {share} of all cases. Both are made from the rule's worst and
best case (`saving.bounds`), and from where the gain lay whenever the fix was tried: the seeded faults of
[RESULTS.md](../samples/faults/RESULTS.md), run with and without it, and jobs of people who did not know the rules. For the likely value a
rule's own scenarios count one each, those of all other rules as much as three together. The range is made of how far scenarios lay from
what the others foretold of them; there those of other rules count as much as five.

Each line says how a rule's predictions do on a scenario that the correction has not seen: each was left out in turn. All runs were on
CPUs.

{table}

A rule without a line is corrected as all others are on average. Tried on each of these rules as if it had none, the range held {held} of
{measured} gains, and {near} came within 15 % of the likely value.
"""


def our_rules() -> tuple[Rule, ...]:
    """The rules of this package, ordered by id."""
    return tuple(rule for rule in all_rules() if rule.check.__module__.startswith(_HOME))


def written(every: Sequence[Rule]) -> dict[Path, str]:
    """What each generated file has to say, by its path within the clone."""
    return {
        **{PAGES / f"{rule.id}.md": _page(rule) for rule in every},
        PAGES / "README.md": _index(every),
        CHARTS: cause_charts.document(),
        PREDICTIONS: _predictions(),
    }


def outdated(root: Path, files: Mapping[Path, str]) -> list[Path]:
    """Generated files that say something else, are missing, or belong to rules that are gone."""
    changed = [path for path, text in files.items() if not (root / path).is_file() or _read(root / path) != text]
    present = (path.relative_to(root) for path in (root / PAGES).glob("*.md"))
    return sorted([*changed, *(path for path in present if path not in files)])


def main() -> None:
    files = written(our_rules())
    (ROOT / PAGES).mkdir(parents=True, exist_ok=True)
    for path in outdated(ROOT, files):
        if path in files:
            (ROOT / path).write_text(files[path], encoding="utf-8")
        else:
            (ROOT / path).unlink()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _page(rule: Rule) -> str:
    parts = [f"# {rule.id}: {rule.name}", _EDITED]
    for heading, text in list(sections(rule.doc))[1:]:
        parts += [*([f"## {heading}"] if heading else []), text[:1].upper() + text[1:]]
    parts += ["## How its predictions fared", _fared(rule)]
    if rule.thresholds:
        rows = [(f"`{name}`", f"{each.value:g}", each.why) for name, each in rule.thresholds.items()]
        parts += ["## Thresholds", _table(("threshold", "default", "why"), rows)]
        parts += [f"To change one: `[tool.rn50-advisor.rules.{rule.id}]` in `pyproject.toml`."]
    if rule.needs:
        parts += ["## Needs", ", ".join(f"`{need}`" for need in sorted(rule.needs))]
    return "\n\n".join([*parts, f"[Source](../../{_source(rule)})"]) + "\n"


def _fared(rule: Rule) -> str:
    e = gain_errors().get(rule.id)
    if e is None:
        return "No run with its fix was measured: its range is made [as that of other rules](../predictions.md)."
    tried = f"{counted(e.measured, 'run')} with the fix, in {counted(e.scenarios, 'scenario')}"
    return f"{tried}: {e.held} inside the range, {e.near} within 15 % of the likely value ([all rules](../predictions.md))."


def _predictions() -> str:
    errors = dict(gain_errors())
    every = errors.pop(ANY_RULE)
    head = ("rule", "scenarios", "runs with the fix", "inside the range", "within 15 % of the likely value")
    cells = {rule: map(str, (e.scenarios, e.measured, e.held, e.near)) for rule, e in errors.items()}
    table = _table(head, [(f"[{rule}](rules/{rule}.md)", *row) for rule, row in cells.items()])
    about = _ABOUT_PREDICTIONS.format(share=share(CONFIDENCE), table=table, **asdict(every))
    return f"# Predicted and measured\n\n{_EDITED}\n\n{about}"


def _index(every: Sequence[Rule]) -> str:
    said = "`rn50-advisor explain ID` prints a rule in the terminal."
    return "\n\n".join(["# Rules", _EDITED, said, _rule_table(every)]) + "\n"


def _rule_table(every: Sequence[Rule]) -> str:
    rows = [(f"[{rule.id}]({rule.id}.md)", rule.name, _fires_when(rule)) for rule in every]
    return _table(("rule", "the problem", "fires when"), rows)


def _fires_when(rule: Rule) -> str:
    return " ".join(dict(sections(rule.doc))["Fires when"].split()).removesuffix(".")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _source(rule: Rule) -> str:
    module = inspect.getmodule(rule.check)
    assert module is not None
    return f"{module.__name__.removeprefix('rn50_advisor.').replace('.', '/')}.py"


if __name__ == "__main__":
    main()
