"""Reads the lines of a job's source file, which may be a pipe or the standard input that the job itself reads."""

from __future__ import annotations

import linecache
import os


def source_lines(file: str) -> list[str]:
    """The lines with their ends; empty if this is no regular file that can be read. A file is read once."""
    regular = os.path.isfile(file)  # noqa: PTH113 - Path.is_file raises where a folder may not be entered
    return linecache.getlines(file) if regular else []


def source_line(file: str, line: int) -> str:
    """One line, counted from 1; empty if there is none."""
    lines = source_lines(file)
    return lines[line - 1] if 0 < line <= len(lines) else ""
