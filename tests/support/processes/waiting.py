"""Waits for what another process or thread does; not a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 30.0  # of any single wait: far more than it takes, so that only a hang fails


def wait_for(condition: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
    """The first true answer; fails loudly after the deadline."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        time.sleep(0.01)
    return answer
