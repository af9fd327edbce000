"""Lines of styled words: plain in a pipe, coloured on a terminal that wants it."""

from __future__ import annotations

import io
import re

import pytest

import report_samples as samples
from rn50_advisor.advisor.report import styled_lines, text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_no_escape_and_a_terminal_gets_colour_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = text.document(samples.bottleneck())
    pipe, terminal = io.StringIO(), Terminal()
    styled_lines.paint(made, pipe)
    styled_lines.paint(made, terminal)
    assert "\x1b" not in pipe.getvalue()
    assert "\x1b[1m" in terminal.getvalue()
    bare = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert [line.rstrip() for line in bare.split("\n")] == pipe.getvalue().split("\n")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    terminal = Terminal()
    styled_lines.paint(text.document(samples.healthy()), terminal)
    assert "\x1b" not in terminal.getvalue()


def test_text_hangs_beside_its_label_and_is_cut_where_asked() -> None:
    lines = styled_lines.wrapped("why  ", "one two three four five six", width=25)
    assert styled_lines.plain(lines) == "  why  one two three four\n       five six"
    cut = styled_lines.wrapped("why  ", "one two three four five six", width=25, most=1)
    assert styled_lines.plain(cut) == "  why  one two three four…"
    assert styled_lines.plain(styled_lines.wrapped("why", "")) == "  why"


def test_beside_a_label_that_leaves_no_room_the_text_sticks_out() -> None:
    shown = styled_lines.plain(styled_lines.wrapped("l" * 40, "word " * 6, width=30)).split("\n")
    assert len(shown) == 2 and shown[0].startswith("  " + "l" * 40 + "word word")


def test_code_and_a_diff_are_kept_whole() -> None:
    long = "x" * 200
    assert styled_lines.plain(styled_lines.code(f"def f():\n\t{long}", 3)).split("\n")[1].strip() == long
    shown = styled_lines.plain(styled_lines.code("def f():\n    " + "one-word " * 30, 3)).split("\n")
    assert (
        shown[0] == "   def f():"
        and shown[1].startswith("       one-word")
        and shown[2].startswith("         one-word")
    )
    assert all(len(line) <= styled_lines.WIDTH for line in shown) and "".join(shown).count("one-word") == 30
    (plus, minus, same) = styled_lines.diff(f"+{long}\n-a\n b", 2)
    assert plus == [("  ", ""), (f"+{long}", "good")] and minus[1] == ("-a", "bad") and same[1] == (" b", "")


def test_a_table_is_as_wide_as_it_needs_and_the_last_words_end_where_they_end() -> None:
    rows = [["a", "1,000", "yes"], ["long name", "2", ""]]
    lines = styled_lines.table(["name", "rate", "why"], rows, left=(0, 2))
    assert styled_lines.plain(lines).split("\n") == [
        "  name        rate  why",
        "  a          1,000  yes",
        "  long name      2",
    ]
    assert lines[2][1][0] == "long name      2  ", "a terminal paints nothing behind it"
    assert styled_lines.plain(styled_lines.table(["n", "rate"], [["a", "1"]])) == "  n  rate\n  a     1"


def test_a_label_is_harmless() -> None:
    assert styled_lines.plain(styled_lines.wrapped("", "\x1b[31mred\x1b[0m\ntwo\u202e")) == "  red two"


@pytest.mark.parametrize(
    ("terminal", "environment", "wants"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "0"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    terminal: bool, environment: dict[str, str], wants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert styled_lines.wants_colour(Terminal() if terminal else io.StringIO()) == wants


def test_without_a_stream_the_error_names_stdout() -> None:
    with pytest.raises(OSError, match="standard output"):
        styled_lines.paint([[("x", "")]], None)


@pytest.mark.parametrize("amount", ["12 %", "11.3 s", "250 ms", "40 µs", "1,378 W", "40.1 samples/s", "2.5 GiB"])
def test_a_number_and_its_unit_stay_on_one_line(amount: str) -> None:
    for width in range(24, 60):
        shown = styled_lines.plain(
            styled_lines.wrapped("", f"the words fill the line, {amount}, then more", width=width)
        )
        assert any(amount in line for line in shown.split("\n")) and "\N{NO-BREAK SPACE}" not in shown
