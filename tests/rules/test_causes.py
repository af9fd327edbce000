"""The table of causes: rules that there are, no rule its own cause, no cycle but the named ones, and no second place that links rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

from rn50_advisor import rules
from rn50_advisor.advisor.commands.explain import explanation
from rn50_advisor.advisor.report.styled_lines import plain
from rn50_advisor.rules.causes import BY_PAIR, CAUSES, Cause
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}
ROWS = [cause for group in CAUSES.values() for cause in group]
AFTER: dict[str, list[str]] = {rule: [other for cause, other in BY_PAIR if cause == rule] for rule in RULES}

# Two that may explain each other: the engine makes the costlier one the root.
CYCLES = (
    # A quota slows one rank: RUN003 sees the exchange grow on all ranks, COM002 sees the late rank. Its lateness causes their waiting, and
    # the waiting makes the steps slower.
    frozenset({"RUN003", "COM002"}),
    # Only if RUN001's threshold is below half a minute: the death that ended such a short hang may also have caused it.
    frozenset({"RUN001", "RUN002"}),
)


def test_the_table_knows_the_rules_and_names_none_its_own_cause() -> None:
    named = {rule for cause in ROWS for rule in (*cause.rules, *cause.explains)}
    assert named <= set(RULES)
    assert not [pair for pair in BY_PAIR if pair[0] == pair[1]]


def test_the_table_says_nothing_twice() -> None:
    assert [pair for pair, rows in BY_PAIR.items() if len({row.words for row in rows}) < len(rows)] == []
    for cause in ROWS:
        assert len(set(cause.rules)) == len(cause.rules) and len(set(cause.explains)) == len(cause.explains), cause


def cycles(way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Each once: those that start with their smallest id."""
    for other in AFTER[way[-1]]:
        if other == way[0]:
            yield (*way, other)
        elif other > way[0] and other not in way:
            yield from cycles((*way, other))


def together(rows: tuple[Cause, ...]) -> bool:
    """No condition of one is what another must not have."""
    return not {row.when for row in rows} & {row.unless for row in rows if row.unless}


def test_only_the_named_cycles_of_rules_explain_each_other() -> None:
    possible = {
        frozenset(cycle)
        for rule in RULES
        for cycle in cycles((rule,))
        if any(together(rows) for rows in product(*(BY_PAIR[step] for step in pairwise(cycle))))
    }
    assert possible == set(CYCLES)


def test_unconditional_causes_make_no_cycle() -> None:
    for cycle in (found for rule in RULES for found in cycles((rule,))):
        assert any(all(row.words for row in BY_PAIR[step]) for step in pairwise(cycle)), cycle


def test_a_rule_names_no_other_rule_but_in_what_people_read() -> None:
    named = {
        (path.name, node.value)
        for path in sorted(Path(rules.__path__[0]).rglob("*.py"))
        if path.name != "causes.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[A-Z][A-Z0-9]{2}\d{3}", node.value)
    }
    assert named == set()


def test_explain_lists_what_a_rule_explains_and_when() -> None:
    shown = " ".join(plain(explanation(RULES["CPU003"])).split())
    listed = shown.partition("Explains, where both fire ")[2]
    assert listed.startswith(
        "CMP003, CMP008, COM001, DAT001, DAT004, DAT011, DAT017, DAT018, DAT019, DAT020, DAT022, DAT025, DAT026, DAT027, RUN003 "
    )
    assert "CMP007, COM002, where it is found on some of the ranks only" in listed
    assert "Explains" not in plain(explanation(RULES["LOP005"]))
    foreign = replace(RULES["LOP005"], id="ACM001", explains=("DAT003",))
    assert plain(explanation(foreign)).endswith("Explains, where both fire\n  DAT003")
