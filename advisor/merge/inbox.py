"""Keeps frames from other nodes beside the run, in a file of their own: the merging side writes it, every display reads it.

Frames are stored as received: the last two hours of steps and the latest two states of each node. The node's own run
file has everything. Unreadable frames are skipped, so data from others never costs a run.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rn50_advisor.advisor.merge.node_frames import (
    SENT_TABLES,
    NotAFrame,
    Rows,
    StateFrame,
    StepsFrame,
    received_rows,
    unpacked,
)
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event, Meta, Process, Recording, Series, Table
from rn50_advisor.advisor.store.document_checks import DOCUMENTS, fitting
from rn50_advisor.advisor.store.schema import NODES_NAME
from rn50_advisor.probes.documents.bounded_numbers import NUMBER_MAX
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts

INBOX_NAME = NODES_NAME
_TABLES = (
    "nodes (node INTEGER PRIMARY KEY, who TEXT NOT NULL UNIQUE)",
    "frames (node INTEGER NOT NULL, kind TEXT NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL, "
    "PRIMARY KEY (node, kind, n)) WITHOUT ROWID",
)
_NEWEST_FIRST = "SELECT body FROM frames WHERE node = ? AND kind = ? AND typeof(body) = 'blob' ORDER BY n DESC LIMIT ?"
_KEPT = {"state": 2, "steps": 720}
_EMPTY_META = {"name": "", "cwd": "", "host": "", "argv": ()}


class Unreadable(Exception):
    """Frames of other nodes cannot be read; the message says why."""


class Inbox:
    """The file's only writer. Methods raise sqlite3.Error or OSError if nothing can be written."""

    def __init__(self, folder: Path) -> None:
        file = folder / INBOX_NAME
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._db = sqlite3.connect(file, isolation_level=None, timeout=5)
        self._db.execute("PRAGMA synchronous = NORMAL")
        for table in _TABLES:
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        self._db.execute("PRAGMA journal_mode = WAL")

    def put(self, who: str, kind: str, body: bytes) -> None:
        """Stores a frame. `who`: a sender's name for itself, the same after a reconnect."""
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT OR IGNORE INTO nodes (who) VALUES (?)", (who,))
        (node,) = self._db.execute("SELECT node FROM nodes WHERE who = ?", (who,)).fetchone()
        (n,) = self._db.execute(
            "SELECT coalesce(max(n), 0) + 1 FROM frames WHERE node = ? AND kind = ?", (node, kind)
        ).fetchone()
        self._db.execute("INSERT INTO frames VALUES (?, ?, ?, ?)", (node, kind, n, body))
        self._db.execute("DELETE FROM frames WHERE node = ? AND kind = ? AND n <= ?", (node, kind, n - _KEPT[kind]))

    def commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.commit()
            self._db.execute("PRAGMA busy_timeout = 200")
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()


def sent_recordings(file: Path, *, recent: int | None = None) -> list[Recording]:
    """Returns a recording of each node that sent its state, from all its step frames or the `recent` latest; empty without a file.

    Raises Unreadable if the file is damaged or locked.
    """
    if not file.is_file():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            db.execute("PRAGMA trusted_schema = OFF")

            def bodies(node: int, kind: str, limit: int = -1) -> list[bytes]:
                return [body for (body,) in db.execute(_NEWEST_FIRST, (node, kind, limit))]

            limit = -1 if recent is None else recent
            nodes = db.execute("SELECT node FROM nodes ORDER BY node").fetchall()
            made = (_recording(bodies(node, "state"), reversed(bodies(node, "steps", limit))) for (node,) in nodes)
            return [recording for recording in made if recording is not None]
    except sqlite3.Error as error:
        raise Unreadable(str(error)) from error


def _recording(states: Iterable[bytes], steps: Iterable[bytes]) -> Recording | None:
    recording = next((made for body in states if (made := _state(body)) is not None), None)
    if recording is None:
        return None
    rows: dict[str, dict[int, list[Rows]]] = {name: {} for name in SENT_TABLES}
    samples: dict[tuple[str, str], list[tuple[int, float]]] = {}
    positions: dict[int, tuple[str, int, int]] = {}
    last_ns = recording.meta.last_ns
    for body in steps:
        try:
            frame = unpacked(body, StepsFrame)
            received = [
                (name, rank, received_rows(name, rank, columns))
                for rank, sent in frame.ranks.items()
                for name, columns in sent.items()
                if name in SENT_TABLES
            ]
        except NotAFrame:
            continue
        last_ns = max(last_ns, frame.t)
        positions |= frame.positions
        for name, rank, of_rank in received:
            rows[name].setdefault(rank, []).append(of_rank)
        for metric, scopes in frame.samples.items():
            for scope, value in scopes.items():
                samples.setdefault((metric, scope), []).append((frame.t, value))
    tables: dict[str, Any] = {n: {rank: _table(n, parts) for rank, parts in r.items()} for n, r in rows.items()}
    return replace(
        recording,
        meta=replace(recording.meta, last_ns=last_ns),
        samples={name: _series(readings) for name, readings in samples.items()},
        positions=positions,
        **tables,
    )


def _table(name: str, parts: list[Rows]) -> Table:
    return np.concatenate(parts).view([(field, np.int64) for field in SENT_TABLES[name]]).reshape(-1)


def _series(readings: list[tuple[int, float]]) -> Series:
    return Series(np.array([t for t, _ in readings], np.int64), np.array([v for _, v in readings], np.float64))


def _state(body: bytes) -> Recording | None:
    """Returns the recording without its steps; None if a part of the frame does not fit. Unknown fields and events are left out."""
    try:
        frame = unpacked(body, StateFrame)
        cells = [cell for row in (frame.meta.values(), *frame.processes) for cell in row]
        if any(isinstance(cell, (int, float)) and not abs(cell) <= NUMBER_MAX for cell in cells):
            raise NotAFrame("a number out of bounds")
        environment, _ = fitting(msgspec.convert(frame.meta.get("environment", {}), dict[str, Any]), MachineFacts)
        names = [field.name for field in fields(Process)]
        rows = [dict(zip(names, row, strict=True)) for row in frame.processes]
        return Recording(
            meta=msgspec.convert({**_EMPTY_META, **frame.meta, "environment": environment}, Meta),
            processes=tuple(msgspec.convert(rows, list[Process], strict=False)),  # SQLite has numbers for bool
            facts={pid: fitting(facts, RankFacts)[0] for pid, facts in frame.facts.items()},
            events=tuple(
                Event(t_ns, kind, pid, rank, fitting(data, DOCUMENTS[kind])[0])
                for t_ns, kind, pid, rank, data in frame.events
                if kind in DOCUMENTS
            ),
            gaps=tuple(ProbeGap(*gap) for gap in frame.gaps),
        )
    except ValueError:  # NotAFrame and msgspec's errors are such
        return None
