"""A screen is opened only where one can be drawn."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.commands.screen_available import has_terminal


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
