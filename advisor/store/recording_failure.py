"""Words for a user on why a recording ended."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError

_FULL_BYTES = 64 * 1024  # less than this is too little for a commit


class RecordingStopped(AdvisorError):
    """Nothing more can be written. Only the first failing call raises it; later calls of the writer do nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"recording stopped: {reason}", "the job goes on; everything recorded until then can be read")
        self.reason = reason


def failure_reason(error: Exception, folder: Path) -> str:
    text = str(error)
    if "readonly" in text or "read-only" in text.lower():
        return f"{folder} is read-only"
    if not folder.exists():
        return f"the run folder {folder} vanished"
    if isinstance(error, FileNotFoundError):
        return f"the run file in {folder} vanished"
    if "full" in text or "No space left" in text or _is_full(folder):
        return f"the disk of {folder} is full"
    return f"{folder}: {text}"


def _is_full(folder: Path) -> bool:
    # SQLite says "disk I/O error" if the -shm or the WAL header does not fit on the disk.
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < _FULL_BYTES
    return False
