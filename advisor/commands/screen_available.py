"""Whether there is a screen to open."""

from __future__ import annotations

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
