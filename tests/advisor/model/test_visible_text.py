"""Foreign text for terminals and pages: words pass; control sequences and hidden characters do not."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.visible_text import coloured, in_lines, on_one_line, readable, with_tabs


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", ""),
        ("epoch 3, loss 0.31", "epoch 3, loss 0.31"),
        ("größer · 学习率 · λ", "größer · 学习率 · λ"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07done", "done"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never closed", ""),
        ("\x1b", ""),
        ("a\u202eb\u200bc\ufeff\u2066d", "abcd"),
        ("a\U000e0041b", "ab"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("e" + "\u0301" * 400, "e" + "\u0301" * 4),
        ("שָׁלוֹם", "שָׁלוֹם"),
    ],
)
def test_words_pass_and_what_hides_or_obeys_does_not(text: str, seen: str) -> None:
    assert readable(text) == on_one_line(text) == in_lines(text) == seen


@pytest.mark.parametrize(
    ("text", "one_line", "tabs", "lines"),
    [
        ("a\nb", "a b", "a b", "a\nb"),
        ("a\r\n\x00b", "a b", "a b", "a \n b"),
        ("a\tb", "a b", "a\tb", "a\tb"),
        ("a\u2028b\x85c", "a b c", "a b c", "a b c"),
        ("\x9b31m", " 31m", " 31m", " 31m"),
    ],
)
def test_control_characters_become_spaces_but_those_that_a_place_can_hold(
    text: str, one_line: str, tabs: str, lines: str
) -> None:
    assert (on_one_line(text), with_tabs(text), in_lines(text)) == (one_line, tabs, lines)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("\x1b[1;32mok\x1b[0m", "\x1b[1;32mok\x1b[0m"),
        ("\x1b[38;2;1;2;3mtrue colour", "\x1b[38;2;1;2;3mtrue colour"),
        ("\x1b[2Jgone", "gone"),
        ("\x1b[32ma\u202eb\t\x1b]0;t\x07c", "\x1b[32mab\tc"),
        ("plain", "plain"),
    ],
)
def test_output_keeps_its_colours_and_nothing_else_that_a_terminal_obeys(line: str, kept: str) -> None:
    assert coloured(line) == kept
