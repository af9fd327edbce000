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
from rn50_advisor.advisor.store.schema import APPLICATION_ID, FILE_NAME, INDEXES, TABLES, USER_VERSION
from rn50_advisor.advisor.store.secrets.masking import as_json, redact_text

LOCK_NAME = "run.lock"
# Room that the lock file holds and gives back when the disk is full: for the WAL frames of the last note (a page or
# two, 4 KB each) and the 32 KB -shm of whoever reads the run afterwards.
SPARE_BYTES = 128 * 1024
# Keeps the WAL near 2 MB; the spare and short runs on small disks are why it is not SQLite's 1000.
CHECKPOINT_PAGES = 500

SET_META = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def take_lock(folder: Path) -> int:
    """The lock file, locked and filled with the spare room; its descriptor is the lock."""
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / FILE_NAME).exists():
            raise UsageError(f"{folder} already holds a run", "name a folder that does not exist yet")
        spare = os.urandom(SPARE_BYTES)  # zeros would take no room on a compressing file system
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
    """An empty run with its meta, open for writing; nothing is left behind where that fails."""
    # -wal and -shm take over its mode
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
        # Only now, so that the file itself holds its tables and a crash at once leaves something to read. A file system
        # without shared memory answers with another mode; that works too, readers then hold up a commit for a moment.
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    except BaseException:
        db.close()
        with contextlib.suppress(OSError):
            file.unlink()
        raise
    return db


def storable(text: str) -> str:
    """Without secrets and as SQLite takes it: arguments, paths and names may hold bytes that are no text."""
    text = redact_text(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def meta_rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, as_json(value, drop_secret_names=True)) for key, value in values.items()]


# Closes a run whose writer was killed: how the job ended, and since when nothing was recorded.
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
