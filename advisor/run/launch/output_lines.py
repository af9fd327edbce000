"""Turns the job's output into lines for a screen while it grows: what progress bars overwrite is overwritten here too."""

from __future__ import annotations

import codecs
import os
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path

LINES_MAX = 20_000
_CHARACTERS_MAX = 8_000  # of one line; a line of megabytes is no line
_BEHIND_BYTES = 8 << 20  # further behind, all but the end is skipped: it would scroll off at once
_END_BYTES = 1 << 20
_ROWS_MAX = 32  # so far up the cursor can go: bars below each other are hardly more
# Control sequences: CSI … final byte, OSC … terminator, and the short ones. An unfinished one waits for the rest.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?|[ -/]*)?$")
_MOVE = re.compile(r"\x1b\[(\d{0,4})([AB])")  # the cursor up or down
# all control characters but tab and newline, those of eight bits too
_SPECIAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"
_STYLES_MAX = 6


@dataclass(frozen=True, slots=True)
class NewOutput:
    """Output after a caller's first `n` lines. `total` counts the unfinished last line, which may be overwritten later.

    `rewritten`: the last of those that the caller knows, as they are now.
    """

    total: int
    lines: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()


class OutputTail:
    """Reads the lines of one growing file, which need not exist yet. Each line contains all of its colour codes."""

    def __init__(self, path: Path, *, colours: bool = True, lines_max: int = LINES_MAX, begin: int = 0) -> None:
        self._path = path
        self._colours = colours
        self._descriptor = -1
        self._at = begin
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unparsed = ""
        self._done: deque[str] = deque(maxlen=lines_max)
        self._total_done = 0
        self._line = _Line()
        self._below: list[str] = []  # rows under the cursor's, the nearest last
        self._touched = 0  # the uppermost row that the cursor was in since the last answer

    def lines_since(self, n: int) -> NewOutput:
        """Reads on. `n` is the `total` of the caller's last answer, 0 at first; older lines than are kept are left out."""
        self._read()
        rows = [*self._done, self._line.text(self._colours), *reversed(self._below)]
        first = self._total_done - len(self._done)
        while len(rows) > len(self._done) and not rows[-1]:
            rows.pop()
        rows += [""] * (n - first - len(rows))  # what the caller knows and has been erased since
        known, touched = max(0, n - first), max(0, self._touched - first)
        self._touched = self._total_done
        return NewOutput(first + len(rows), tuple(rows[known:]), tuple(rows[touched:known]))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            behind = os.fstat(self._descriptor).st_size - self._at
            if behind > _BEHIND_BYTES:
                self._skip(behind - _END_BYTES)
            data = os.pread(self._descriptor, _BEHIND_BYTES, self._at)
        except OSError:
            return
        self._at += len(data)
        self._take(self._decoder.decode(data))

    def _skip(self, count: int) -> None:
        self._at += count
        self._decoder.reset()
        self._unparsed = ""
        self._move(len(self._below))
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
            if self._line.empty and not self._below and not _SPECIAL.search(line.rstrip("\r")):
                self._finish(line.rstrip("\r")[:_CHARACTERS_MAX])
                continue
            self._write(line)
            self._new_line()
        self._write(rest)

    def _write(self, text: str) -> None:
        at = 0
        for move in _MOVE.finditer(text):
            self._line.write(text[at : move.start()])
            rows = max(1, int(move[1] or 1))
            self._move(rows if move[2] == "B" else -rows)
            at = move.end()
        self._line.write(text[at:])

    def _new_line(self) -> None:
        """Moves the cursor to the start of the next row, and adds that row if there is none."""
        if not self._below:
            self._below.append("")
        self._move(1)
        self._line.cursor = 0

    def _move(self, rows: int) -> None:
        """The cursor, within the rows that are there; of bars below each other each update is written so."""
        for _ in range(min(abs(rows), _ROWS_MAX)):
            text = self._line.text(self._colours)
            if rows > 0 and self._below:
                self._finish(text)
                self._line = self._line.moved_to(self._below.pop())
            elif rows < 0 and self._done and len(self._below) < _ROWS_MAX:
                self._below.append(text)
                self._line = self._line.moved_to(self._done.pop())
                self._total_done -= 1
        self._touched = min(self._touched, self._total_done)

    def _finish(self, line: str) -> None:
        self._done.append(line)
        self._total_done += 1


class _Line:
    """The line under the cursor, character by character with its colours, because anything in it may be overwritten."""

    def __init__(self) -> None:
        self.style = ""  # in force where the cursor is
        self.cursor = 0
        self._cells: list[tuple[str, str]] = []

    @property
    def empty(self) -> bool:
        return not self._cells and not self.style and not self.cursor

    def moved_to(self, text: str) -> _Line:
        """A line with that text, and the cursor where it is in this one."""
        line = _Line()
        line.write(text)
        line.style, line.cursor = self.style, self.cursor
        return line

    def write(self, text: str) -> None:
        at = 0
        for special in _SPECIAL.finditer(text):
            if special.start() < at:
                continue  # inside a sequence
            self._put(text[at : special.start()])
            at = special.end()
            if special[0] == "\r":
                self.cursor = 0
            elif special[0] == "\b":
                self.cursor = max(0, self.cursor - 1)
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
        self._cells += [("", " ")] * (self.cursor - len(self._cells) if text else 0)
        cells = [(self.style, character) for character in text[: max(0, _CHARACTERS_MAX - self.cursor)]]
        self._cells[self.cursor : self.cursor + len(cells)] = cells
        self.cursor += len(cells)

    def _obey(self, sequence: str) -> None:
        """Applies colours and erasing; other cursor movements have no effect here."""
        if sequence.startswith("\x1b[") and sequence.endswith("m"):
            first, *more = sequence[2:-1].split(";")
            if first.strip("0") == "":
                self.style = ""
                first, more = ";".join(more), []
            if first:
                kept = self.style.split("m")[:-1][-_STYLES_MAX:]  # codes that are never reset would pile up
                self.style = "".join(f"{code}m" for code in (*kept, f"\x1b[{';'.join([first, *more])}"))
        elif sequence in ("\x1b[K", "\x1b[0K"):
            del self._cells[self.cursor :]
        elif sequence == "\x1b[2K":
            self._cells = [("", " ")] * self.cursor
        elif sequence == "\x1b[1K":
            self._cells[: self.cursor] = [("", " ")] * self.cursor
