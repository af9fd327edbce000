"""Lines of styled words: what the text report is made of, printable plain in a pipe and coloured on a terminal."""

from __future__ import annotations

import errno
import os
import re
import textwrap
from collections.abc import Iterable
from typing import Literal, TextIO

from rn50_advisor.advisor.model import visible_text
from rn50_advisor.advisor.report import inert_text

WIDTH = 100
_TEXT_WIDTH_MIN = 20  # beside a label that leaves less the text sticks out
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµ]?s|samples/s|[KMGT]iB|MHz|°C|W|J)(?![\w/]))")
Style = Literal["", "title", "dim", "bad", "warn", "good", "code"]
Line = list[tuple[str, Style]]
_RICH = {"title": "bold", "dim": "dim", "bad": "bold red", "warn": "yellow", "good": "green", "code": "cyan"}


def plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(visible_text.with_tabs(text) for text, _ in line).rstrip() for line in lines)


def title(text: str) -> Line:
    return [(text.upper(), "title")]


def wrapped(
    label: str,
    text: str,
    style: Style = "",
    *,
    indent: int = 2,
    most: int = 0,
    label_style: Style = "dim",
    width: int = WIDTH,
) -> list[Line]:
    """`label` and then `text` hanging beside it, a number and its unit on one line; `most` > 0 cuts after that many lines."""
    text_width = max(width - indent - len(label), _TEXT_WIDTH_MIN)
    joined = _BEFORE_UNIT.sub(_NO_BREAK, inert_text.one_line(text, 2000))
    parts = [p.replace(_NO_BREAK, " ") for p in textwrap.wrap(joined, text_width, break_on_hyphens=False)] or [""]
    if most and len(parts) > most:
        parts = [*parts[: most - 1], parts[most - 1][: text_width - 1].rstrip() + "…"]
    first: Line = [(" " * indent, ""), (label, label_style), (parts[0], style)]
    return [first, *([(" " * (indent + len(label)), ""), (part, style)] for part in parts[1:])]


def code(text: str, indent: int) -> list[Line]:
    """What to write instead, whole: lines that are too long go on in further ones."""
    found: list[Line] = []
    for line in inert_text.block(text).split("\n"):
        rest = " " * (len(line) - len(line.lstrip()) + 2)
        width = max(WIDTH - indent, len(rest) + _TEXT_WIDTH_MIN)
        parts = textwrap.wrap(
            line,
            width,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        found += [[(" " * indent, ""), (part, "code")] for part in parts or [""]]
    return found


def diff(text: str, indent: int) -> list[Line]:
    """A unified diff: never wrapped or cut, so that it can be copied."""
    styles: dict[str, Style] = {"+": "good", "-": "bad", "@": "dim"}
    return [[(" " * indent, ""), (line, styles.get(line[:1], ""))] for line in inert_text.diff(text).split("\n")]


def table(head: list[str], rows: list[list[str]], *, left: tuple[int, ...] = (0,)) -> list[Line]:
    """`left`: the columns that are set to the left; all are as wide as they need."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    if len(head) - 1 in left:
        widths[-1] = 0  # nothing follows it

    def line(row: list[str], style: Style) -> Line:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return [("  ", ""), ("  ".join(cells), style)]

    return [line(head, "dim"), *(line(row, "") for row in rows)]


def paint(lines: Iterable[Line], stream: TextIO | None) -> None:
    """Writes the lines, in colour where the stream is a terminal that wants it. Raises OSError, also without a stream."""
    lines = list(lines)
    if stream is None:
        raise closed_stdout()
    if not wants_colour(stream):
        stream.write(plain(lines) + "\n")
        return
    from rich.console import Console  # costs 30 ms, for colour only  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, soft_wrap=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(Text.assemble(*((visible_text.with_tabs(text), _RICH.get(style, "")) for text, style in line)))


def closed_stdout() -> OSError:
    """The error for a stdout that was closed before we started (`>&-`), which Python leaves as None."""
    return OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")


def wants_colour(stream: TextIO) -> bool:
    """A terminal, unless NO_COLOR (no-color.org) or TERM=dumb say otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
