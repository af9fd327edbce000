"""The one folder that a triage writes to; it goes away however the triage ends, and what a killed one left goes with the next."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil

PREFIX = "rn50-advisor-triage-"
_NAME = re.compile(rf"{PREFIX}(\d+)-")


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Below `parent`, or where temporary files go. Raises OSError where nothing can be written."""
    where = parent or Path(tempfile.gettempdir())
    _sweep(where)
    with _ending_by_exception():
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=where))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(where: Path) -> None:
    """Only what is ours by name and owner, and of a process that is gone."""
    for left in where.glob(f"{PREFIX}*"):
        maker = _NAME.match(left.name)
        with contextlib.suppress(OSError):
            if maker and not psutil.pid_exists(int(maker[1])) and left.lstat().st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _ending_by_exception() -> Iterator[None]:
    """SIGTERM and SIGHUP end us as Ctrl-C does: through every `finally`."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
