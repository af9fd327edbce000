"""What every source of output promises: each line is given once, in order, and the last one may change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.launch.output_lines import OutputTail
from rn50_advisor.advisor.tui.output_source import OutputSource
from tui_doubles import Lines

# what a job writes, and the lines that a terminal then shows
WRITES = [
    ("", []),
    ("one", ["one"]),
    ("\ntwo 10 %", ["one", "two 10 %"]),
    ("\rtwo 90 %", ["one", "two 90 %"]),
    ("\nthree\nfour", ["one", "two 90 %", "three", "four"]),
]
Write = Callable[[str, list[str]], None]


@pytest.fixture(params=["the tail of a log", "lines by hand"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OutputSource, Write]:
    lines, log = Lines(), tmp_path / "output.log"
    log.touch()

    def write(text: str, shown: list[str]) -> None:
        lines.lines = shown
        with log.open("a", newline="") as file:
            file.write(text)

    return (lines if request.param == "lines by hand" else OutputTail(log)), write


def test_a_reader_has_what_a_terminal_shows(source: tuple[OutputSource, Write]) -> None:
    reads, write = source
    kept: list[str] = []
    for text, shown in WRITES:
        write(text, shown)
        news = reads.lines_since(len(kept))
        kept = [*kept[: len(kept) - len(news.rewritten)], *news.rewritten, *news.lines]
        assert kept == shown and news.total == len(shown)
    assert reads.lines_since(len(kept)).lines == ()
