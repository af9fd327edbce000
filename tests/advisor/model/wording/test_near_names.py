"""A misspelt name gets the names that are like it, the likeliest first."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.wording.near_names import did_you_mean, near_names

COMMANDS = ("run", "watch", "report", "compare", "explain", "rules", "runs")
RULES = ("CPU003", "DAT003", "DAT013", "DAT023", "DAT030")


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("reprot", COMMANDS, ["report"]),
        ("RUNS", COMMANDS, ["runs", "run", "rules"]),
        ("DAT03", RULES, ["DAT003"]),
        ("dat 3", RULES, ["DAT003"]),
        ("DAT0003", RULES, ["DAT003"]),
        ("DTA003", RULES, ["DAT003", "DAT013", "DAT023"]),
        ("frobnicate", COMMANDS, []),
        ("", COMMANDS, []),
        ("x" * 100_000, COMMANDS, []),
        ("report", (), []),
    ],
)
def test_names_that_are_like_a_word_are_found(word: str, known: tuple[str, ...], found: list[str]) -> None:
    assert near_names(word, known) == found


def test_the_question_names_them_or_is_empty() -> None:
    assert did_you_mean("reprot", COMMANDS) == "did you mean report?"
    assert did_you_mean("dat00", RULES) == "did you mean DAT003, DAT030, DAT013?"
    assert did_you_mean("frobnicate", COMMANDS) == ""
