"""What a terminal or a pipe gets whose encoding knows no bars and arrows: one plain character for each, so that tables stay in line."""

from __future__ import annotations

import codecs
import contextlib
import sys

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
