"""Finds out whether a screen can be opened, and prints plain characters where the encoding requires it."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys


def has_terminal() -> bool:
    """True if stdin, stdout and stderr are a terminal: keys come from stdin, Textual draws on stderr, and stdout may be a file.

    False for a dumb terminal (an editor's shell, the log of a CI job), which shows escape sequences as garbage.
    """
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):  # a stream that was closed before we started
        return False


ERRORS = "rn50-advisor-plain"
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("─━╌┄–—−╴╶", "-"),
        **dict.fromkeys("│┃▕", "|"),
        **dict.fromkeys("█▉▊▋▌▍▎▏", "#"),
        **dict.fromkeys("▲△", "^"),
        **dict.fromkeys("▼▽", "v"),
        **dict.fromkeys("▶▷▸→≥", ">"),
        **dict.fromkeys("◀◁←≤", "<"),
        **dict.fromkeys("✗✖×", "x"),
        **dict.fromkeys("✓✔", "+"),
        **dict.fromkeys("…·∙", "."),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("‘’", "'"),
        "µ": "u",
    }
)


# Replaces bars and arrows that an encoding lacks, each by one plain character, so that tables stay aligned.
def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def use_plain_glyphs() -> None:
    """Makes stdout and stderr of this process write plain characters for those they cannot encode. A job's streams are unaffected."""
    codecs.register_error(ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors=ERRORS)  # type: ignore[union-attr]
