"""Makes the database of a new run and locks its folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.store.schema import APPLICATION_ID, FILE_NAME, INDEXES, TABLES, USER_VERSION
from rn50_advisor.advisor.store.secrets.masking import as_json, redact_text

LOCK_NAME = "run.lock"
# Space that the lock file reserves and frees when the disk is full: for the WAL frames of the last note (one or two
# pages of 4 KB) and for the 32 KB -shm of a later reader.
SPARE_BYTES = 128 * 1024
# Keeps the WAL near 2 MB. SQLite's 1000 would be too large for the reserved space and for short runs on small disks.
CHECKPOINT_PAGES = 500

SET_META = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def take_lock(folder: Path) -> int:
    """Locks the lock file, fills it with the reserved space and returns its descriptor, which holds the lock.

    Raises UsageError if the folder holds a run or another advisor records into it, OSError if there is no space.
    """
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / FILE_NAME).exists():
            raise UsageError(f"{folder} already holds a run", "name a folder that does not exist yet")
        spare = os.urandom(SPARE_BYTES)  # zeros would take no space on a compressing file system
        if os.write(lock, spare) < SPARE_BYTES:
            raise OSError("No space left on device")
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"another advisor is recording into {folder}", "give every run a folder of its own") from None
    except BaseException:
        give_lock_back(folder, lock)
        raise
    return lock


def give_lock_back(folder: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        (folder / LOCK_NAME).unlink()
    os.close(lock)


def create_database(file: Path, meta: Mapping[str, Any]) -> sqlite3.Connection:
    """Creates an empty run with its meta, open for writing; removes the file if that fails."""
    # -wal and -shm inherit this mode
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {USER_VERSION}")
        for table, columns in TABLES.items():
            db.execute(f"CREATE TABLE {table} ({columns})")
        for table, column in INDEXES.items():
            db.execute(f"CREATE INDEX {table}_by_{column} ON {table} ({column})")
        db.executemany(SET_META, meta_rows(meta))
        db.execute("COMMIT")
        # WAL only now: the file itself already holds its tables, so an immediate crash leaves a readable file. A file
        # system without shared memory keeps another mode. That works too, but readers then delay a commit for a moment.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    except BaseException:
        db.close()
        with contextlib.suppress(OSError):
            file.unlink()
        raise
    return db


def storable(text: str) -> str:
    """Returns the text without secrets and valid for SQLite: arguments, paths and names may hold bytes that are not text."""
    text = redact_text(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def meta_rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, as_json(value, drop_secret_names=True)) for key, value in values.items()]


def add_gap(folder: Path, gap: ProbeGap) -> None:
    """Adds a gap to a run that has ended. Raises sqlite3.Error if it cannot be written."""
    row = tuple(storable(text) for text in (gap.metric, gap.scope, gap.reason, gap.hint))
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None, timeout=5)) as db:
        db.execute("INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?)", row)


def close_broken_off(
    folder: Path, *, reason: str, root_pid: int, ended_ns: int, exit_code: int | None, exit_signal: int | None
) -> None:
    """Closes a run whose writer was killed: stores how the job ended and when the recording stopped.

    Call it only when the writer is gone. Raises sqlite3.Error or OSError if nothing can be written.
    """
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
