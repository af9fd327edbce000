"""What was found in a run, in a few lines beside its run file: lists of runs read these instead of analysing every run."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rn50_advisor.advisor import __version__
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.report import Report, State, plain_values
from rn50_advisor.advisor.store.run_access import open_database
from rn50_advisor.advisor.store.schema import FILE_NAME

if TYPE_CHECKING:  # it brings numpy, which takes longer to import than a list of runs takes to read
    from rn50_advisor.advisor.model.recording import Recording

SUMMARY_NAME = "summary.json"
UNIX_S_MAX = 253_402_300_799  # the end of the year 9999, where Python's dates end
_TIME_MAX = 1 << 61  # ns, as in `typed_rows`, which brings numpy
_BYTES_MAX = 1 << 16
# Runs are also read on Windows, which has none of these.
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A verdict as it was found with the rules of `advisor_version`. Speed-ups are those of the verdict's finding."""

    state: State
    rule: str | None
    title: str
    speedup: tuple[float, float] | None
    likely: float | None
    samples_per_s: float | None
    started_unix_s: float
    duration_s: float
    advisor_version: str = __version__
    schema: Literal["rn50-advisor/summary/1"] = "rn50-advisor/summary/1"


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When a run took place, from its meta table. `ended`: the job's end was recorded."""

    started_unix_s: float
    duration_s: float
    ended: bool


def summary_of(report: Report, recording: Recording) -> RunSummary:
    rule = report.verdict.rule
    saving = next((finding.saving for finding in report.findings if finding.rule == rule), None)
    gain = saving if saving is not None and saving.is_gain else None
    return RunSummary(
        state=report.verdict.state,
        rule=rule,
        title=report.verdict.title,
        speedup=gain.speedup if gain else None,
        likely=gain.likely if gain and not gain.is_vague else None,
        samples_per_s=report.throughput.samples_per_s,
        started_unix_s=recording.meta.started_unix_s,
        duration_s=report.job.duration_s,
    )


def write_summary(folder: Path, summary: RunSummary) -> None:
    """Writes or replaces the summary of the run in `folder`. Raises OSError."""
    replace_file(folder / SUMMARY_NAME, json.dumps(plain_values(summary)))


def replace_file(file: Path, text: str) -> None:
    """Writes or replaces a file that only its owner can read, in one step. Raises OSError."""
    new = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, _CREATE, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def read_summary(folder: Path) -> RunSummary | None:
    """Returns the summary in this folder; None if there is none, or another file of this name."""
    try:
        descriptor = os.open(folder / SUMMARY_NAME, READ_FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            found = msgspec.json.decode(file.read(_BYTES_MAX), type=RunSummary)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return found if 0 <= found.started_unix_s <= UNIX_S_MAX else None


def read_times(folder: Path) -> RunTimes:
    """Reads a few rows, not the run. Raises NotARun."""
    with open_database(folder / FILE_NAME) as db:
        meta = meta_values(db, "started_unix_s", "started_ns", "last_ns", "ended_ns")
    try:
        first, last, ended = (_number(meta.get(key)) for key in ("started_ns", "last_ns", "ended_ns"))
        started = _number(meta.get("started_unix_s"))
        if first is None or last is None or started is None or not 0 <= started <= UNIX_S_MAX:
            raise ValueError(started)
    except (TypeError, ValueError) as error:
        raise NotARun(f"{folder} is damaged: table meta has no times") from error
    return RunTimes(started, max(0.0, ((last if ended is None else ended) - first) / 1e9), ended is not None)


def _number(value: object) -> float | None:
    """Raises TypeError for anything but None and a number that can be a time."""
    if value is None or (isinstance(value, (int, float)) and abs(value) <= _TIME_MAX):
        return value
    raise TypeError(type(value).__name__)


def meta_values(db: sqlite3.Connection, *keys: str) -> dict[str, Any]:
    """Raises NotARun for a value that is not JSON."""
    marks = ", ".join("?" * len(keys))
    found = db.execute(f"SELECT key, value FROM meta WHERE key IN ({marks})", keys).fetchall()
    try:
        return {key: json.loads(value) for key, value in found}
    except (TypeError, ValueError, RecursionError) as error:
        raise NotARun(f"table meta is damaged: {error}") from error
