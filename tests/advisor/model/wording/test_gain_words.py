"""Wording of predicted gains: the likely value first, then its range; no value where the range is too wide."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.wording import gain_words

NO_GAIN = Saving((0.0, 0.0), (1.0, 1.0), "", likely=1.0)
OLD = Saving((0.28, 0.33), (1.9, 2.3), "")
USUAL = Saving((0.28, 0.33), (1.9, 2.3), "", likely=2.04)
SMALL = Saving((-0.01, 0.02), (0.96, 1.09), "", likely=1.04)
VAGUE = Saving((0.1, 0.6), (1.2, 3.1), "", likely=1.9)


@pytest.mark.parametrize(
    ("saving", "text"),
    [
        (NO_GAIN, ""),
        (OLD, "1.9–2.3× faster, saves 280–330 ms per step"),
        (USUAL, "about 2.0× faster (1.9–2.3×), saves 280–330 ms per step"),
        (SMALL, "about 1.04× faster (0.96–1.09×), saves up to 20.0 ms per step"),
        (VAGUE, f"1.2–3.1× faster, saves 100–600 ms per step, {gain_words.TRY_IT}"),
        (Saving((0.001, 0.002), (1.0, 1.001), ""), "saves 1.0–2.0 ms per step"),
    ],
    ids=["none", "an older version's", "usual", "perhaps slower", "vague", "no faster"],
)
def test_a_gain_is_described_if_there_is_one(saving: Saving, text: str) -> None:
    assert gain_words.gain(saving) == text


@pytest.mark.parametrize(
    ("saving", "text"), [(NO_GAIN, "1.00×"), (USUAL, "2.0× (1.9–2.3×)"), (VAGUE, "1.2–3.1×"), (OLD, "1.9–2.3×")]
)
def test_a_speed_up_in_few_words(saving: Saving, text: str) -> None:
    assert gain_words.speedup(saving, about="") == text


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (None, f"1.2–3.1× faster, saves 100–600 ms per step, {gain_words.TRY_IT}"),
        (92, f"1.2–3.1× faster, saves 100–600 ms per step, {gain_words.TRY_IT}"),
        (60, "1.2–3.1× faster, saves 100–600 ms per step"),
        (20, "1.2–3.1× faster"),
        (5, "1.2–3.1× faster"),
    ],
)
def test_what_does_not_fit_whole_is_left_out(room: int | None, text: str) -> None:
    assert gain_words.gain(VAGUE, room) == text


@pytest.mark.parametrize("low_s", [0.00123, 0.123, 1.23, 5.43])
def test_the_longest_gains_fit_a_summary_of_a_hundred_columns(low_s: float) -> None:
    saving = Saving((low_s, 9.9 * low_s), (1.06, 57.3), "", likely=3.0)
    assert gain_words.gain(saving, 92).endswith(gain_words.TRY_IT)
