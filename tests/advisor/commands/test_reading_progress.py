"""The progress bar is drawn on a terminal alone."""

from __future__ import annotations

import io
import sys

import pytest

from rn50_advisor.advisor.commands import reading_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with reading_progress.reading_progress() as advance:
        assert advance is None


def test_a_long_reading_shows_a_bar_and_a_short_one_none(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for after_s in (0.0, 3600.0):
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        monkeypatch.setattr(reading_progress, "SHOWN_AFTER_S", after_s)
        monkeypatch.setenv("TERM", "xterm")
        with reading_progress.reading_progress() as advance:
            assert advance is not None
            advance(0.5)
        drawn.append("reading the trace" in terminal.getvalue())
    assert drawn == [True, False]
