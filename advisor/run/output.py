"""Turns the job's output into lines for a screen while it grows: what a progress bar overwrites is overwritten here too."""

from __future__ import annotations

import codecs
import os
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

LINES_MAX = 20_000
_CHARACTERS_MAX = 8_000  # of one line; a line of megabytes is no line
_READ_BYTES = 4 << 20  # at one call
_BEHIND_BYTES = 8 << 20  # further behind, the beginning is skipped: it would scroll off at once
# Control sequences: CSI … final byte, OSC … terminator, and the short ones. An unfinished one waits for the rest.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?$")
# all control characters but tab and newline, those of eight bits too
_SPECIAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"
_STYLES_MAX = 6


@dataclass(frozen=True, slots=True)
class NewOutput:
    """What came since a caller knew `n` lines. `total` counts the unfinished last line, which may be overwritten later."""

    total: int
    lines: tuple[str, ...] = ()
    rewritten_last: str | None = None


class OutputTail:
    """One reader of one file, which need not exist yet. Lines carry their own colours, each complete in itself."""

    def __init__(self, path: Path, *, colours: bool = True, lines_max: int = LINES_MAX) -> None:
        self._path = path
        self._colours = colours
        self._descriptor = -1
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unparsed = ""
        self._done: deque[str] = deque(maxlen=lines_max)
        self._total_done = 0
        self._line = _Line()

    def lines_since(self, n: int) -> NewOutput:
        """Reads on. `n` is the `total` of the caller's last answer, 0 at first; older lines than are kept are left out."""
        self._read()
        open_line = self._line.text(self._colours)
        total = self._total_done + bool(open_line)
        rewritten = None
        if 0 < n <= total:  # the caller's last line may have been unfinished then
            rewritten = self._at_index(n - 1, open_line)
        fresh = [self._at_index(index, open_line) for index in range(max(n, self._first()), total)]
        return NewOutput(total, tuple(line for line in fresh if line is not None), rewritten)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _first(self) -> int:
        return self._total_done - len(self._done)

    def _at_index(self, index: int, open_line: str) -> str | None:
        if index >= self._total_done:
            return open_line
        return self._done[index - self._first()] if index >= self._first() else None

    def _read(self) -> None:
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            behind = os.fstat(self._descriptor).st_size - self._at
            if behind > _BEHIND_BYTES:
                self._skip(behind - _READ_BYTES // 4)
            data = os.pread(self._descriptor, _READ_BYTES, self._at)
        except OSError:
            return
        self._at += len(data)
        self._take(self._decoder.decode(data))

    def _skip(self, count: int) -> None:
        self._at += count
        self._decoder.reset()
        self._unparsed = ""
        self._line = _Line()
        self._finish(f"[{count} bytes of output are not shown]")

    def _take(self, text: str) -> None:
        text = self._unparsed + text
        unfinished = _UNFINISHED.search(text, max(0, len(text) - 4200))
        self._unparsed = unfinished[0] if unfinished and unfinished[0] else ""
        if self._unparsed:
            text = text[: -len(self._unparsed)]
        *lines, rest = text.split("\n")
        for line in lines:
            if self._line.empty and not _SPECIAL.search(line.rstrip("\r")):
                self._finish(line.rstrip("\r")[:_CHARACTERS_MAX])
                continue
            self._line.write(line)
            self._finish(self._line.text(self._colours))
            self._line = _Line(self._line.style)
        self._line.write(rest)

    def _finish(self, line: str) -> None:
        self._done.append(line)
        self._total_done += 1


class _Line:
    """The line under the cursor, character by character with its colours, because anything in it may be overwritten."""

    def __init__(self, style: str = "") -> None:
        self.style = style  # in force where the cursor is
        self._cells: list[tuple[str, str]] = []
        self._cursor = 0

    @property
    def empty(self) -> bool:
        return not self._cells and not self.style

    def write(self, text: str) -> None:
        at = 0
        for special in _SPECIAL.finditer(text):
            if special.start() < at:
                continue  # inside a sequence
            self._put(text[at : special.start()])
            at = special.end()
            if special[0] == "\r":
                self._cursor = 0
            elif special[0] == "\b":
                self._cursor = max(0, self._cursor - 1)
            elif special[0] == "\x1b" and (sequence := _SEQUENCE.match(text, special.start())):
                self._obey(sequence[0])
                at = sequence.end()
        self._put(text[at:])

    def text(self, colours: bool) -> str:
        parts, style = [], ""
        for cell_style, character in self._cells:
            if colours and cell_style != style:
                parts.append((_RESET if style else "") + cell_style)
                style = cell_style
            parts.append(character)
        return "".join(parts) + (_RESET if style else "")

    def _put(self, text: str) -> None:
        cells = [(self.style, character) for character in text[: max(0, _CHARACTERS_MAX - self._cursor)]]
        self._cells[self._cursor : self._cursor + len(cells)] = cells
        self._cursor += len(cells)

    def _obey(self, sequence: str) -> None:
        """Colours and erasing; whatever else moves about a screen has none here."""
        if sequence.startswith("\x1b[") and sequence.endswith("m"):
            first, *more = sequence[2:-1].split(";")
            if first.strip("0") == "":
                self.style = ""
                first, more = ";".join(more), []
            if first:
                kept = self.style.split("m")[:-1][-_STYLES_MAX:]  # codes that are never reset would pile up
                self.style = "".join(f"{code}m" for code in (*kept, f"\x1b[{';'.join([first, *more])}"))
        elif sequence in ("\x1b[K", "\x1b[0K"):
            del self._cells[self._cursor :]
        elif sequence == "\x1b[2K":
            self._cells = [("", " ")] * self._cursor
        elif sequence == "\x1b[1K":
            self._cells[: self._cursor] = [("", " ")] * self._cursor
