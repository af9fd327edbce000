"""Each phase has a letter, a colour and a pattern; places have words."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.report import PHASES
from rn50_advisor.advisor.model.wording.rank_words import place
from rn50_advisor.advisor.tui.styles.phase_styles import in_order, phase_style, short_title, title


def test_no_two_phases_share_a_letter_and_none_is_without_a_look() -> None:
    letters = [phase_style(phase).letter for phase in (*PHASES, "of another version")]
    assert len(letters) == len(set(letters)) and all(len(letter) == 1 for letter in letters)
    assert all(phase_style(phase).colour.startswith("$") for phase in PHASES)


def test_waiting_has_a_pattern_and_work_has_none() -> None:
    assert [phase_style(phase).fill for phase in ("forward", "backward", "optimizer")] == [" "] * 3
    assert all(phase_style(phase).fill.strip() for phase in ("input_wait", "comm_exposed", "gap", "unattributed"))


def test_titles_have_a_short_form_where_they_are_long() -> None:
    assert (title("input_wait"), short_title("input_wait")) == ("waiting for input", "input wait")
    assert title("own") == short_title("own") == "own"
    assert all(len(short_title(phase)) <= len(title(phase)) for phase in PHASES)


@pytest.mark.parametrize(
    ("phase", "words"),
    [("start", "starting up"), ("backward", "backward"), ("", "not known"), ("gap", "between steps")],
)
def test_where_a_rank_is(phase: str, words: str) -> None:
    assert place(phase) == words


def test_phases_come_in_one_order_the_unknown_last_and_those_without_time_not() -> None:
    given = {"zebra": 1.0, "gap": 0.5, "ape": 1.0, "forward": 0.0, "optimizer": 1e-12, "input_wait": 0.2}
    assert in_order(given) == [("input_wait", 0.2), ("gap", 0.5), ("ape", 1.0), ("zebra", 1.0)]
    assert in_order({}) == []
