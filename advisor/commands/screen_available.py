"""Finds out whether a screen can be opened."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys


def has_terminal() -> bool:
    """All three: keys come from stdin, Textual draws on stderr, and a redirected stdout is somebody's file.

    A dumb one (an editor's shell, a log of a CI job) shows sequences as rubbish.
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


# Replacements for terminals and pipes whose encoding lacks bars and arrows: one plain character for each, so that tables stay aligned.
def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def use_plain_glyphs() -> None:
    """On the streams of this process that cannot write all characters; those of a job are its own."""
    codecs.register_error(ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors=ERRORS)  # type: ignore[union-attr]
