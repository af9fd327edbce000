"""Writes one run file while the job runs. The first failure ends the recording and nothing else."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor import __version__
from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import AnyEvent, Process, Source
from rn50_advisor.advisor.store.database import (
    SET_META,
    create_database,
    give_lock_back,
    meta_rows,
    storable,
    take_lock,
)
from rn50_advisor.advisor.store.recording_failure import RecordingStopped, failure_reason
from rn50_advisor.advisor.store.retention import Limits, Retention
from rn50_advisor.advisor.store.schema import FILE_NAME, RECORD_COLUMNS, RING_TABLES, cells_beside
from rn50_advisor.advisor.store.secrets.masking import as_json
from rn50_advisor.advisor.store.secrets.source_secrets import redact_source
from rn50_advisor.probes.rank.layout import SPAN_FIELDS

REDUCING_BUDGET_S = 0.02  # per commit; with one commit a second at most 2 % of a core, even when much is overdue

_LABEL = SPAN_FIELDS.index("label")
_BUGS = (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.InterfaceError)


__all__ = ["RecordingStopped", "RunWriter"]


class RunWriter:
    """The only writer of a run. Not thread-safe: threads that share it must take turns."""

    def __init__(
        self, folder: Path, db: sqlite3.Connection, lock: int, limits: Limits, clock: Callable[[], int]
    ) -> None:
        """Use `create` instead."""
        self.folder = folder
        self._file = folder / FILE_NAME
        self._inode = self._file.stat().st_ino
        self._db = db
        self._lock = lock
        self._clock = clock
        self._retention = Retention(db, limits)
        self._series: dict[tuple[str, str], int] = {}
        self._insert = {kind: _insert_record(table) for kind, table in RING_TABLES.items()}
        self._committed_ns = clock()
        self._stopped: str | None = None
        self._pending_meta: dict[str, Any] = {}  # not committed yet; if a commit fails, the last note includes it
        self._closed = False

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        meta: Mapping[str, Any],
        limits: Limits | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> RunWriter:
        """Creates a run in `folder`, which is created (0700) if it does not exist.

        Raises UsageError if the folder holds a run, RecordingStopped if nothing can be written there.
        """
        now_ns = clock()
        defaults = {
            "name": folder.name,
            "started_unix_s": time.time(),
            "started_ns": now_ns,
            "last_ns": now_ns,
            "advisor_version": __version__,
        }
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = take_lock(folder)
            try:
                db = create_database(folder / FILE_NAME, {**defaults, **meta})
            except BaseException:
                give_lock_back(folder, lock)
                raise
            return cls(folder, db, lock, limits or Limits(), clock)
        except (OSError, sqlite3.DatabaseError) as error:
            raise RecordingStopped(failure_reason(error, folder)) from error

    def put_meta(self, **values: Any) -> None:
        """Stores JSON values, secrets masked. Values put after the recording stopped get one last try at `close`."""
        self._pending_meta.update(values)
        self._write(SET_META, meta_rows(values))

    def put_process(self, process: Process) -> None:
        p = process
        command = storable(p.command)
        row = (p.pid, p.first_seen_ns, p.role, p.rank, p.local_rank, p.worker, p.parent_pid, command)
        end = (p.ended_ns, p.exit_code, p.exit_signal, p.clean_exit, p.oom_killed)
        self._write(f"INSERT OR REPLACE INTO processes VALUES ({_marks(13)})", [row + end])
        self._retention.process_written()

    def put_facts(self, pid: int, facts: Mapping[str, Any]) -> None:
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(pid, as_json(facts))])

    def put_part_name(self, part: int, described: Mapping[str, Any]) -> None:
        """Stores the meaning of the sample parts with this number."""
        self._write("INSERT OR REPLACE INTO part_names VALUES (?, ?)", [(part, as_json(described))])

    def put_records(
        self, kind: int, rank: int, rows: Sequence[tuple[int, tuple[int, ...]]], *, pid: int | None = None
    ) -> None:
        """Stores records of a ring, each `(flags, payload)`. `pid`: the worker that made the batches, for batches only."""
        if not rows:
            return
        table = RING_TABLES[kind]
        if table == "batches" and pid is None:
            raise ValueError("batches come with the pid of their worker")
        full = [(rank, *cells_beside(table, flags, pid), *payload) for flags, payload in rows]
        self._write(self._insert[kind], full)
        if table == "spans":
            for label, count in Counter(payload[_LABEL] for _, payload in rows).items():
                self._retention.inserted(table, rank, count, label)
        else:
            self._retention.inserted(table, rank, len(full))

    def put_samples(self, t_ns: int, samples: Iterable[Sample]) -> None:
        """Stores the samples of one tick. NaN is not a reading and is left out; its probe should have reported a gap."""
        rows, new = [], []
        for sample in samples:
            series = self._series.get((sample.metric, sample.scope))
            if series is None:
                series = self._series[sample.metric, sample.scope] = len(self._series) + 1
                new.append((series, sample.metric, storable(sample.scope)))
            if sample.value == sample.value:
                rows.append((t_ns, series, sample.value))
        if new:
            self._write("INSERT INTO series VALUES (?, ?, ?)", new)
        self._write("INSERT INTO samples VALUES (?, ?, ?)", rows)
        self._retention.sampled(t_ns, len(rows))

    def put_event(self, event: AnyEvent) -> None:
        row = (event.t_ns, event.kind, event.pid, event.rank, as_json(event.data))
        self._write("INSERT INTO events VALUES (?, ?, ?, ?, ?)", [row])
        self._retention.inserted("events", event.kind, 1)

    def put_gap(self, gap: ProbeGap) -> None:
        row = tuple(storable(text) for text in (gap.metric, gap.scope, gap.reason, gap.hint))
        self._write("INSERT OR REPLACE INTO gaps VALUES (?, ?, ?, ?)", [row])

    def put_source(self, source: Source) -> bool:
        """Stores a file of the job's code, secrets masked; False if it cannot be masked and is not kept."""
        masked = redact_source(source.text)
        if masked is not None:
            row = (storable(source.path), source.sha256, masked, source.edited)
            self._write("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", [row])
        return masked is not None

    def put_position(self, rank: int, phase: str, step: int, since_ns: int) -> None:
        self._write("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", [(rank, phase, step, since_ns)])

    def commit(self) -> None:
        """Makes everything put so far visible to readers and safe from a crash of this process; reduces some old rows."""
        if self._stopped or self._closed:
            return
        try:
            if self._file.stat().st_ino != self._inode:
                raise FileNotFoundError(self._file)
            now_ns = self._clock()
            if self._db.in_transaction:
                self._retention.advance(REDUCING_BUDGET_S)
                self._db.executemany(SET_META, meta_rows({"last_ns": now_ns}))
                self._db.execute("COMMIT")
            self._committed_ns = now_ns
            self._pending_meta.clear()
        except _BUGS:
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            # "locked" occurs only on file systems without WAL, during a read. The transaction waits for the next commit.
            if "locked" not in str(error):
                raise self._stop(error) from error

    def close(self) -> None:
        """Commits and, where possible, leaves one plain file without WAL. Raises RecordingStopped if this commit fails."""
        if self._closed:
            return
        try:
            self.commit()
        finally:
            self._closed = True
            with contextlib.suppress(sqlite3.Error, OSError):
                if self._stopped and self._pending_meta:
                    self._note_pending_meta()
                if not self._stopped:
                    # Makes the file readable from read-only media; SQLite refuses it, harmlessly, while somebody reads.
                    self._db.execute("PRAGMA busy_timeout = 200")
                    self._db.execute("PRAGMA journal_mode = DELETE")
            with contextlib.suppress(sqlite3.Error, OSError):
                self._db.close()
            give_lock_back(self.folder, self._lock)

    def _write(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if self._stopped or self._closed or not rows:
            return
        try:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(sql, rows)
        except _BUGS:
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._stop(error) from error

    def _stop(self, error: Exception) -> RecordingStopped:
        self._stopped = failure_reason(error, self.folder)
        self._pending_meta["recording_stopped_ns"] = self._committed_ns
        self._pending_meta["recording_stopped_reason"] = self._stopped
        with contextlib.suppress(sqlite3.Error, OSError):
            os.ftruncate(self._lock, 0)
            self._db.execute("PRAGMA wal_autocheckpoint = 0")  # it would use up the freed space by growing the file
            self._note_pending_meta()
        return RecordingStopped(self._stopped)

    def _note_pending_meta(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(SET_META, meta_rows(self._pending_meta))
        self._db.execute("COMMIT")
        self._pending_meta.clear()


def _insert_record(table: str) -> str:
    columns = RECORD_COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({_marks(len(columns))})"


def _marks(columns: int) -> str:
    return ", ".join("?" * columns)
