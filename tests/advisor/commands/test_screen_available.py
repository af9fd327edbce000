"""A screen is opened only where one can be drawn, and text stays readable where an encoding knows no bars and arrows."""

from __future__ import annotations

import io

import pytest

from rn50_advisor.advisor.commands.screen_available import ERRORS, has_terminal, use_plain_glyphs


@pytest.mark.parametrize(
    ("kind", "terminal"), [("xterm-256color", True), ("linux", True), ("dumb", False), (None, True)]
)
def test_a_dumb_terminal_is_none(monkeypatch: pytest.MonkeyPatch, kind: str | None, terminal: bool) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True, raising=False)
    if kind is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", kind)
    assert has_terminal() == terminal


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("▲ Bottleneck ─── 1.4–1.6× · 3 µs", "^ Bottleneck --- 1.4-1.6x . 3 us"),
        ("workers: 0 → 4 ≥ ◀ here ✓ ✗ …", "workers: 0 > 4 > < here + x ."),
        ("compute ██▉▏", "compute ####"),
        ("日本 \udcff é", "?? ? ?"),
    ],
)
def test_each_character_becomes_one_that_can_be_written(text: str, written: str) -> None:
    use_plain_glyphs()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors=ERRORS)
    stream.write(text)
    stream.flush()
    assert raw.getvalue().decode() == written and len(written) == len(text)


def test_what_an_encoding_has_is_left_as_it_is() -> None:
    use_plain_glyphs()
    assert "a–×\udcff".encode("utf-8", ERRORS) == "a–×?".encode()
    assert "µ × –".encode("latin-1", ERRORS) == "µ × -".encode("latin-1")
