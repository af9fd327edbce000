"""A row for each run of a list: what is stored of it, without analysing it."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.run_summary import RunSummary, read_summary, read_times


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list. `state`: that of its verdict, or "recording", "not judged" (nothing was stored), "unreadable"."""

    name: str
    path: str
    state: str
    rule: str | None = None
    title: str = ""
    likely: float | None = None
    speedup: tuple[float, float] | None = None
    samples_per_s: float | None = None
    started_unix_s: float | None = None
    duration_s: float | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunRowDocument(RunRow):
    """A run in the list for programs. `started`: `2026-11-30T12:00:00+00:00`."""

    started: str | None = None


def row_of(folder: Path) -> RunRow:
    """Reads what is stored of a run, and analyses nothing."""
    size = _size_bytes(folder)
    if (summary := read_summary(folder)) is not None:
        return _judged(folder, summary, size)
    try:
        times = read_times(folder)
    except NotARun as error:
        return RunRow(folder.name, str(folder), "unreadable", title=error.message, size_bytes=size)
    state, title = "not judged", ""
    if not times.ended:
        state, title = ("recording", "") if _is_recorded(folder) else (state, "the recording broke off")
    return RunRow(
        folder.name,
        str(folder),
        state,
        title=title,
        started_unix_s=times.started_unix_s,
        duration_s=times.duration_s,
        size_bytes=size,
    )


def _is_recorded(folder: Path) -> bool:
    if sys.platform != "linux":  # only read there; nothing is recorded, and Windows has no such locks
        return False
    from rn50_advisor.advisor.store.run_removal import is_recorded  # noqa: PLC0415 - it cannot be imported there

    return is_recorded(folder)


def as_json(row: RunRow) -> dict[str, Any]:
    started = row.started_unix_s
    when = None if started is None else datetime.fromtimestamp(started, timezone.utc).isoformat(timespec="seconds")
    return asdict(RunRowDocument(**asdict(row), started=when))


def _judged(folder: Path, summary: RunSummary, size_bytes: int) -> RunRow:
    return RunRow(
        folder.name,
        str(folder),
        summary.state,
        summary.rule,
        summary.title,
        summary.likely,
        summary.speedup,
        summary.samples_per_s,
        summary.started_unix_s,
        summary.duration_s,
        size_bytes,
    )


def _size_bytes(folder: Path) -> int:
    """Bytes of the files in the folder, without its subfolders."""
    size = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                size += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
    return size
