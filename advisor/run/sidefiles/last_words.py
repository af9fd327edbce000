"""Selects kept output of a failed job: lines that mention errors, and the last ones. No opinions."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.run.launch.output_lines import OutputTail
from rn50_advisor.advisor.store.schema import OUTPUT_NAME
from rn50_advisor.advisor.store.secrets.masking import redact_text

_ERROR_LINES_MAX = 200  # the first of them: what follows an error mostly repeats it on other ranks
_LAST_LINES = 40
_CHARACTERS_MAX = 500
# The relay copies the output on its own: the end of it may come a moment after the job's.
_SETTLES_WITHIN_S = 0.5
_LOOK_S = 0.05
_ERROR_WORDS = re.compile(
    r"error|exception|traceback|abort|fatal|terminat|timeout|timed out|mismatch|killed|signal|out of memory|no space|bus error"
    r"|address already|failed|root cause|^\s*rank\s*:|last enqueued|duplicate gpu|assert",
    re.IGNORECASE,
)


def last_words(run_folder: Path) -> list[str]:
    """Returns the job's last lines in order, without colours and secrets; none if it wrote to the user's own terminal or file."""
    path = run_folder / OUTPUT_NAME
    if not path.is_file():
        return []
    _let_it_settle(path)
    return words_of(path)


def words_of(path: Path, *, begin: int = 0) -> list[str]:
    """The same of any file, from this byte on."""
    tail = OutputTail(path, colours=False, lines_max=20_000, begin=begin)
    try:
        lines = tail.lines_since(0).lines
    finally:
        tail.close()
    return [redact_text(line)[:_CHARACTERS_MAX] for line in relevant_lines(lines)]  # half a secret is not recognised


def relevant_lines(lines: Sequence[str]) -> list[str]:
    """Lines that mention errors, from the first on, and the last lines."""
    begin = max(0, len(lines) - _LAST_LINES)
    found = [line for line in lines[:begin] if _ERROR_WORDS.search(line)][:_ERROR_LINES_MAX]
    return [*found, *lines[begin:]]


def _let_it_settle(path: Path) -> None:
    deadline, size = time.monotonic() + _SETTLES_WITHIN_S, -1
    with contextlib.suppress(OSError):  # gone with its folder: then there is nothing to read either
        while size != (size := path.stat().st_size) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
