"""The commands `explain` and `rules`: a rule in its own words, and the list of all."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands.explain import FAMILIES, explain, explanation, listing, rules
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.wording.metric_titles import METRIC_TITLES
from rn50_advisor.advisor.report.styled_lines import plain
from rn50_advisor.advisor.store.trial_history import keep
from rn50_advisor.rules.registry import all_rules
from rn50_advisor.rules.rule import Rule, Threshold
from trial_samples import PAST

DOC = """The disk is asleep.

What it does: compares `reads` with ``writes``,
over the whole run.

How to fix it: one of these.
- wake it
- buy another

Fires when: it sleeps."""
SLEEPY = Rule(
    "ACM001",
    "The disk is asleep",
    lambda analysis, thresholds: Clear(),
    needs=(MEASURES["step.time_s"],),
    explains=("DAT003",),
    thresholds={"nap": Threshold(0.25, "a quarter of an hour")},
    doc=DOC,
)


def test_sections_stand_under_their_headings_and_lists_stay_lists() -> None:
    assert plain(explanation(SLEEPY)) == (
        "ACM001  The disk is asleep\n\nWhat it does\n  Compares `reads` with ``writes``, over the whole run.\n\n"
        "How to fix it\n  One of these.\n  - wake it\n  - buy another\n\nFires when\n  It sleeps.\n\n"
        "Severity\n  by cost: critical from 30 %, high from 15 %, medium from 5 %, low from 2 % of the step\n\n"
        "Thresholds\n  nap = 0.25  a quarter of an hour\n\nNeeds\n  step time\n\nExplains, where both fire\n  DAT003"
    )


def test_a_title_that_says_more_than_the_name_is_kept_and_code_is_marked() -> None:
    rule = Rule("ACM002", "The disk is asleep", SLEEPY.check, doc="The disk `sda` is asleep, and nobody wakes it.")
    lines = explanation(replace(rule, severities=("high", "low")))
    assert plain(lines) == (
        "ACM002  The disk is asleep\n\n  The disk `sda` is asleep, and nobody wakes it.\n\nSeverity\n  high–low"
    )
    assert ("`sda`", "code") in lines[2]


def test_the_list_has_a_line_a_rule_and_its_needs_where_asked() -> None:
    other = Rule("ACM002", "No needs", SLEEPY.check, severities=("critical", "high", "medium"))
    assert plain(listing([SLEEPY, other])).splitlines() == [
        "ACM001  by cost          The disk is asleep",
        "ACM002  critical–medium  No needs",
    ]
    assert plain(listing([SLEEPY, other], needs=True)).splitlines() == [
        "ACM001  The disk is asleep  step time",
        "ACM002  No needs            –",
    ]
    assert listing([]) == []


def test_all_that_rules_need_has_a_title() -> None:
    assert {name for rule in all_rules() for name in rule.needs} <= set(METRIC_TITLES)


def test_programs_get_ids_names_and_needs_of_all_rules() -> None:
    rows = json.loads(CliRunner().invoke(rules, ["--json"]).stdout)
    assert [row["id"] for row in rows] == [rule.id for rule in all_rules()]
    assert {row["id"]: row["severities"] for row in rows}["RUN002"] == ["critical"]
    assert all(row["name"] and row["needs"] == sorted(row["needs"]) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "letters"),
    [
        (["DAT"], {"DAT"}),
        (["dat"], {"DAT"}),
        (["--family", "data"], {"DAT"}),
        (["loop"], {"LOP"}),
        (["memory"], {"GPU", "MEM"}),
        ([], set(FAMILIES)),
    ],
)
def test_rules_are_listed_by_family_a_line_each(arguments: list[str], letters: set[str]) -> None:
    lines = CliRunner().invoke(rules, arguments).stdout.splitlines()
    expected = [rule for rule in all_rules() if rule.id[:3] in letters]
    assert [line[:8].rstrip() for line in lines] == [rule.id for rule in expected]
    assert all(line.endswith(f"  {rule.name}") for line, rule in zip(lines, expected, strict=True))

    programs = json.loads(CliRunner().invoke(rules, [*arguments, "--json"]).stdout)
    assert [(row["id"], row["family"]) for row in programs] == [(rule.id, rule.id[:3]) for rule in expected]


def test_ids_that_begin_alike_and_needs_are_listed_where_asked() -> None:
    assert CliRunner().invoke(rules, ["dat01"]).stdout.split("\n")[0].startswith("DAT010  ")
    shown = CliRunner().invoke(rules, ["DAT003", "--needs"]).stdout
    assert shown.startswith("DAT003  ") and "input wait" in shown and "step.input_wait_s" not in shown


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("DTA", "did you mean data, DAT?"),
        ("DAT99", "rn50-advisor rules DAT lists this family"),
        ("xyzzy", "CMP (compute), COM ("),
    ],
)
def test_an_unknown_family_is_refused_with_those_there_are(asked: str, hint: str) -> None:
    error = CliRunner().invoke(rules, [asked]).exception
    assert isinstance(error, UsageError) and hint in error.hint


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_ids_are_coloured_on_a_terminal_that_wants_it(
    variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", written)
    rules.callback(family="DSK", named=None, needs=False, calibration=False, as_json=False)  # type: ignore[misc]
    assert ("\x1b[" in written.getvalue()) == coloured and "DSK001" in written.getvalue()


@pytest.mark.parametrize("asked", ["dat003", " DAT003 ", "Dat003"])
def test_a_rule_is_found_whatever_its_case(asked: str) -> None:
    done = CliRunner().invoke(explain, [asked])
    assert done.exit_code == 0 and done.stdout.startswith("DAT003  ")


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("DAT0033", "did you mean DAT003"),
        ("DAT03", "did you mean DAT003?"),
        ("nonsense", "rn50-advisor rules lists them"),
        ("", "rules"),
    ],
)
def test_an_unknown_rule_is_refused_with_those_that_are_near(asked: str, hint: str) -> None:
    error = CliRunner().invoke(explain, [asked]).exception
    assert isinstance(error, UsageError) and hint in error.hint


def test_without_a_rule_all_are_listed() -> None:
    shown = CliRunner().invoke(explain, []).stdout
    assert shown.startswith(plain(listing(all_rules()))) and shown.endswith("rn50-advisor explain RULE says more.\n")


def test_rules_say_how_well_they_have_foretold_on_this_machine(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    assert "no trial is kept" in CliRunner().invoke(rules, ["--calibration"], env=state).output
    keep(PAST, tmp_path / "rn50-advisor" / "trials.jsonl")
    said = CliRunner().invoke(rules, ["--calibration"], env=state).output
    assert "1 of 3 gains measured on this machine" in said and "DAT003" in said and "CMP014" in said
    one = CliRunner().invoke(rules, ["data", "--calibration"], env=state).output
    assert "DAT003" in one and "CMP014" not in one
    (record,) = json.loads(CliRunner().invoke(rules, ["DAT", "--calibration", "--json"], env=state).output)
    assert (record["rule"], record["compared"], record["inside"]) == ("DAT003", 2, 1)
