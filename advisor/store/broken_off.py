"""Closes a run whose writer was killed: how the job ended, and since when nothing was recorded."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from rn50_advisor.advisor.store.database import LOCK_NAME, SET_META, meta_rows
from rn50_advisor.advisor.store.schema import FILE_NAME


def close_broken_off(
    folder: Path, *, reason: str, root_pid: int, ended_ns: int, exit_code: int | None, exit_signal: int | None
) -> None:
    """Only once the writer is gone. Raises sqlite3.Error or OSError where nothing can be written."""
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None, timeout=5)) as db:
        db.execute("BEGIN IMMEDIATE")
        ((last_ns,),) = db.execute("SELECT value FROM meta WHERE key = 'last_ns'").fetchall()
        end = {"ended_ns": ended_ns, "exit_code": exit_code, "exit_signal": exit_signal}
        stop = {"recording_stopped_ns": json.loads(last_ns), "recording_stopped_reason": reason}
        db.executemany(SET_META, meta_rows(end | stop))
        db.execute(
            "UPDATE processes SET ended_ns = ?, exit_code = ?, exit_signal = ? WHERE pid = ? AND ended_ns IS NULL",
            (ended_ns, exit_code, exit_signal, root_pid),
        )
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = DELETE")  # readable from read-only media
    (folder / LOCK_NAME).unlink(missing_ok=True)
