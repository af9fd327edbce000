"""Photographs a page in headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

CHROMIUMS = "chromium", "chromium-browser", "google-chrome"
_WITHIN_S = 120.0


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


def photograph_page(
    browser: str, address: str, picture: Path, *, size: tuple[int, int], virtual_ms: int = 5000
) -> None:
    """Writes the top of the page as PNG, `size` in pixels. Its timers see `virtual_ms` pass, in less time; with 0 they run as ever."""
    width, height = size
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
    ]
    options += [f"--virtual-time-budget={virtual_ms}"] if virtual_ms else []
    with tempfile.TemporaryDirectory() as folder:
        command = [browser, *options, f"--user-data-dir={folder}", f"--screenshot={picture}", address]
        subprocess.run(command, check=True, capture_output=True, timeout=_WITHIN_S)
