"""Reads what is new in this node's own run file, as the frames that it sends. The file holds what is not sent yet; nothing is kept twice.

What the file stores is already masked.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rn50_advisor.advisor.merge.node_frames import SENT_TABLES, Rows, StateFrame, StepsFrame, sent_tables
from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.store.schema import FILE_NAME
from rn50_advisor.probes.documents import event_documents as documents

_ROWS_MAX = 100_000  # of one table in one frame, some 40 MB while it is made; further rows follow in the next frame
_EVENTS_MAX = 64
_PROCESSES_MAX = 512
_GAPS_MAX = 64
_FACTS_BYTES_MAX = 16_384  # per rank; loaders with long arguments make the facts large
_EVENTS_BYTES_MAX = 4 << 20  # with the stacks of their ranks; the other side unpacks no more than 8 MiB per frame
_STALL_REPORTS = 2  # of each stall: the last two suffice, and a hang of hours has hundreds
_STALL = documents.KINDS[documents.StallSeen]
_SENT_EVENTS = tuple(
    documents.KINDS[document]
    for document in (
        documents.StallSeen, documents.StallEnd, documents.NotedDeath, documents.OomKill, documents.ShedProbe,
        documents.RecorderCost, documents.AgentCrash, documents.PrintedLines, documents.FlightDumps,
    )
)  # fmt: skip
# Metrics that the merging side shows or judges by; all others are only in the node's own run file.
_HOST_METRICS = frozenset(
    (
        "cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s", "cpu.cores", "cpu.allowed_cores", "job.cpu_s", "mem.total_bytes",
        "mem.available_bytes", "mem.swap_in_bytes", "mem.shm_used_bytes", "mem.shm_total_bytes", "psi.mem_some_s", "disk.read_bytes",
        "disk.busy_s", "net.tx_bytes", "net.rx_bytes", "net.speed_mbps",
    )
)  # fmt: skip
_RANK_METRICS = ("cgroup.", "proc.threads_delay_s", "proc.held_bytes", "gpu.")


class RunTail:
    """Used by one thread. Methods raise sqlite3.Error if the file cannot be read."""

    def __init__(self, folder: Path) -> None:
        # Only SQLite may open the file here: closing any other descriptor would drop the locks of this process's writer.
        uri = f"{(folder / FILE_NAME).resolve().as_uri()}?mode=ro"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
        self._last_rowid: dict[str, int] = {}
        self._events: list[tuple[int, object]] = []  # rowid and stall of the events that a state frame holds
        self._unsent_events = False
        self.has_more_rows = False  # than the last steps frame could hold

    def close(self) -> None:
        self._db.close()

    def steps_frame(self, now_ns: int) -> StepsFrame:
        """Returns what was recorded since the last call."""
        with self._db:
            self._db.execute("BEGIN")
            self.has_more_rows = False
            by_rank: dict[int, dict[str, Rows]] = {}
            for table in SENT_TABLES:
                rows = self._new_rows(table)
                for rank in np.unique(rows[:, 0]).tolist():
                    by_rank.setdefault(rank, {})[table] = rows[rows[:, 0] == rank][:, 1:]
            positions = self._db.execute("SELECT rank, phase, step, since_ns FROM positions").fetchall()
            samples = self._new_samples()
        return StepsFrame(
            now_ns,
            {rank: (phase, step, since_ns) for rank, phase, step, since_ns in positions},
            samples,
            {rank: sent_tables(tables) for rank, tables in sorted(by_rank.items())},
        )

    def state_frame(self, now_ns: int) -> StateFrame:
        """Returns the complete state; together with the steps it makes up the run."""
        with self._db:
            self._db.execute("BEGIN")
            self.has_news()
            self._unsent_events = False
            meta = {key: json.loads(value) for key, value in self._db.execute("SELECT key, value FROM meta")}
            facts = self._db.execute(
                "SELECT pid, value FROM facts WHERE pid IN (SELECT pid FROM processes WHERE role = 'rank')"
            )
            return StateFrame(
                now_ns,
                {**meta, "last_ns": now_ns},
                self._processes(),
                {pid: _shortened(json.loads(value)) for pid, value in facts},
                self._events_within_bounds(),
                self._db.execute(f"SELECT metric, scope, reason, hint FROM gaps LIMIT {_GAPS_MAX}").fetchall(),
            )

    def has_news(self) -> bool:
        """True if something happened that no state frame holds yet."""
        found = self._db.execute(
            f"SELECT rowid, kind, data FROM events WHERE rowid > ? AND +kind IN {_SENT_EVENTS} ORDER BY rowid",
            (self._last_rowid.get("events", 0),),
        )
        for rowid, kind, data in found.fetchall():
            stall = json.loads(data).get("id") if kind == _STALL else None
            reports = [event for event in self._events if stall is not None and event[1] == stall]
            for event in reports[: 1 - _STALL_REPORTS]:
                self._events.remove(event)
            self._events = [*self._events[1 - _EVENTS_MAX :], (rowid, stall)]
            self._last_rowid["events"], self._unsent_events = rowid, True
        return self._unsent_events

    def _new_rows(self, table: str) -> Rows:
        """Returns the table's new rows, with their rank in front."""
        columns = ("rowid", "rank", *SENT_TABLES[table])
        found = self._db.execute(
            f"SELECT {', '.join(columns)} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {_ROWS_MAX}",
            (self._last_rowid.get(table, 0),),
        )
        rows = np.fromiter(chain.from_iterable(found), np.int64).reshape(-1, len(columns))
        if len(rows):
            self._last_rowid[table] = int(rows[-1, 0])
        self.has_more_rows |= len(rows) == _ROWS_MAX
        return rows[:, 1:]

    def _new_samples(self) -> dict[str, dict[str, float]]:
        """Returns the latest of the new samples that the other side uses."""
        ranks = {f"pid:{pid}" for (pid,) in self._db.execute("SELECT pid FROM processes WHERE role = 'rank'")}
        latest = self._db.execute(  # SQLite takes the value from the row with the maximum
            "SELECT series.metric, scope, value, max(samples.rowid) FROM samples JOIN series ON id = samples.metric "
            "WHERE samples.rowid > ? GROUP BY id",
            (self._last_rowid.get("samples", 0),),
        )
        found: dict[str, dict[str, float]] = {}
        for metric, scope, value, rowid in latest.fetchall():
            self._last_rowid["samples"] = max(self._last_rowid.get("samples", 0), rowid)
            of_rank = metric.startswith(_RANK_METRICS) and (scope in ranks or scope.startswith("gpu:"))
            if of_rank or (metric in _HOST_METRICS and not scope.startswith("cpu:")):
                found.setdefault(metric, {})[scope] = value
        return found

    def _processes(self) -> list[tuple[Any, ...]]:
        """Returns all but the job's other processes; if there are too many, workers that have ended are left out first."""
        names = ", ".join(field.name for field in fields(Process))
        return self._db.execute(
            f"SELECT * FROM (SELECT {names} FROM processes WHERE role != 'other' ORDER BY role = 'worker' AND ended_ns "
            f"IS NOT NULL, first_seen_ns DESC LIMIT {_PROCESSES_MAX}) ORDER BY first_seen_ns, pid"
        ).fetchall()

    def _events_within_bounds(self) -> list[tuple[int, str, int | None, int | None, dict[str, Any]]]:
        """Returns the events that fit, the latest first in line, since they describe the present."""
        found = []
        left = _EVENTS_BYTES_MAX
        for rowid, _ in reversed(self._events):
            query = "SELECT t_ns, kind, pid, rank, data FROM events WHERE rowid = ?"
            for *cells, text in self._db.execute(query, (rowid,)):
                if len(text) <= left:
                    left -= len(text)
                    found.append((*cells, json.loads(text)))
        return found[::-1]


def _shortened(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts without their largest entries, to keep frames small; the node's own run file has all of them."""
    for name in sorted(facts, key=lambda n: -len(str(facts[n]))):
        if len(str(facts)) <= _FACTS_BYTES_MAX:
            break
        del facts[name]
    return facts
