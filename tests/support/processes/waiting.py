"""Waits for another process or thread. Not a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 120.0  # of any single wait: far more than it takes on a busy machine, so that only a hang fails


def wait_for(condition: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
    """Returns the condition's first true value; fails after the deadline."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        time.sleep(0.01)
    return answer
