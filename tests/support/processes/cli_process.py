"""Runs the command line as users do: a real process, its output as bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 120.0
# What a developer has set must not change what is tested.
DROPPED = (
    "RN50_ADVISOR_RUN_DIR",
    "RN50_ADVISOR_CONFIG",
    "RN50_ADVISOR_NO_TUI",
    "RN50_ADVISOR_DEBUG",
    "NO_COLOR",
    "PYTHONPATH",
    "COLUMNS",  # and the next: pytest-xdist sets them, and a terminal of a test has a size of its own
    "LINES",
)


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in DROPPED}, **more}


def advisor(
    *arguments: str | bytes | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`python -m rn50_advisor.advisor.cli ARGUMENTS` without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "rn50_advisor.advisor.cli", *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
