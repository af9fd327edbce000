"""Runs the command line as users do: a real process, its output as bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 120.0
# Variables that a developer may have set and that must not change the tests.
DROPPED = (
    "RN50_ADVISOR_RUN_DIR",
    "RN50_ADVISOR_CONFIG",
    "RN50_ADVISOR_NO_TUI",
    "RN50_ADVISOR_DEBUG",
    "NO_COLOR",
    "PYTHONPATH",
    "COLUMNS",  # and LINES: pytest-xdist sets them, but a test's terminal has its own size
    "LINES",
)


def environment(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in DROPPED}, **more}


def advisor(
    *arguments: str | bytes | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs `python -m rn50_advisor.advisor.cli ARGUMENTS` without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "rn50_advisor.advisor.cli", *arguments],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
