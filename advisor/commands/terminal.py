"""Whether there is a screen to open."""

from __future__ import annotations

import sys


def has_terminal() -> bool:
    """All three: keys come from stdin, Textual draws on stderr, and a redirected stdout is somebody's file."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):  # a stream that was closed before we started
        return False
