"""Keeps a long recording small: older rows are folded or thinned, a small slice at a time.

Steps are folded into windows of time, as sums and counts: only the detail is lost. Outliers stay as they are. Of the
samples, the first reading of each window is kept. All other rows are thinned by a hash; tables with a step hash the
step, so that all ranks keep the same steps and stay comparable. If that still exceeds its bound (days of training,
hundreds of series), windows double and shares halve, so a run file has a ceiling whatever the job does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from rn50_advisor.advisor.store.step_folding import COLUMNS, fold

SECOND_NS = 1_000_000_000
_HASH = 2_654_435_769  # Knuth's multiplicative hash: its high bits spread any arithmetic progression evenly
_HASH_SPACE = 1 << 32
_WINDOWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Retention limits. Row counts are per rank (spans: and label; events: per kind; samples: in total)."""

    raw_steps: int = 20_000
    windows: int = 36_000  # ten hours of one-second windows; 8 ranks then take about 40 MB
    outlier_share: float = 0.01
    window_ns: int = SECOND_NS
    raw_samples_ns: int = 3600 * SECOND_NS
    raw_samples: int = 1_200_000  # 27 bytes each: a node with 1300 series keeps a quarter of an hour in full
    thin_samples: int = 1_000_000
    thin_sample_ns: int = 10 * SECOND_NS
    # by table: raw rows, thinned rows, and n of the share 1/2^n that thinning keeps at first
    thinned: dict[str, tuple[int, int, int]] = field(
        default_factory=lambda: {
            "gpu_steps": (20_000, 10_000, 3),
            "comm": (10_000, 10_000, 1),
            "collectives": (10_000, 10_000, 1),
            "spans": (10_000, 5_000, 1),
            "batches": (10_000, 10_000, 3),
            "looks": (10_000, 10_000, 2),
            "parts": (50_000, 50_000, 2),  # about eight per look
            "events": (4_000, 1_000, 1),
        }
    )
    # kinds of large events, which a live screen reads every second: the profile of a ten-line script took 52 KB
    large_events: dict[str, tuple[int, int, int]] = field(default_factory=lambda: {"profile": (100, 100, 1)})
    processes: int = 5_000  # including ended ones; 90 epochs of 8 ranks with 16 workers each start 11,520
    slice_rows: int = 2_048  # 5 to 15 ms each


@dataclass(slots=True)
class RetainedRows:
    """Rows of one rank (or kind, or rank and label, or all samples) in order of arrival: reduced up to `cursor`, fresh after it."""

    table: str
    key: int | str
    raw_rows: int
    reduced_rows: int
    label: int | None = None  # for spans: evaluations are few, but drawn indices come once a step
    level: int = 0  # windows are 2^level times as wide, or 1/2^level of the rows is kept
    cursor: int = 0
    fresh: int = 0
    reduced: int = 0

    def moved(self, taken: int, left: int, cursor: int) -> None:
        """Records that `taken` fresh rows became `left` reduced ones. Too many reduced rows restart the reduction one level coarser."""
        self.fresh -= taken
        self.reduced += left
        self.cursor = cursor
        if self.reduced > self.reduced_rows:
            self.level += 1
            self.fresh += self.reduced
            self.reduced = 0
            self.cursor = 0


class Retention:
    """Counts the rows that the writer inserts and reduces overdue rows, inside the writer's transaction."""

    def __init__(self, db: sqlite3.Connection, limits: Limits) -> None:
        self._db = db
        self._limits = limits
        self._stretches: dict[tuple[str, int | str, int | None], RetainedRows] = {}
        self._samples = RetainedRows("samples", 0, limits.raw_samples, limits.thin_samples)
        self._newest_sample_ns = 0
        self._kept_window: dict[int, int] = {}  # by series, since a window of samples spans several slices
        self._processes = 0  # rows written since the last count
        self._processes_left_out = self._left_out_until_ns = 0

    def inserted(self, table: str, key: int | str, rows: int, label: int | None = None) -> None:
        stretch = self._stretches.get((table, key, label))
        if stretch is None:
            if table == "steps":
                stretch = RetainedRows(table, key, self._limits.raw_steps, self._limits.windows)
            else:
                large = self._limits.large_events.get(str(key)) if table == "events" else None
                raw, reduced, level = large or self._limits.thinned[table]
                stretch = RetainedRows(table, key, raw, reduced, label, level)
            self._stretches[table, key, label] = stretch
        stretch.fresh += rows

    def sampled(self, t_ns: int, rows: int) -> None:
        self._samples.fresh += rows
        self._newest_sample_ns = t_ns

    def process_written(self) -> None:
        self._processes += 1

    def advance(self, budget_s: float) -> None:
        """Reduces overdue rows until none are left or the time is up; finishes the slice under way."""
        deadline = time.perf_counter() + budget_s
        for _ in self._slices():
            if time.perf_counter() >= deadline:
                return

    def _slices(self) -> Iterator[None]:
        if self._processes >= min(self._limits.slice_rows, self._limits.processes):
            self._leave_processes_out()
            yield
        for stretch in sorted(self._stretches.values(), key=lambda s: s.raw_rows - s.fresh):
            size = min(self._limits.slice_rows, stretch.raw_rows)
            while stretch.fresh >= stretch.raw_rows + size:
                if stretch.table == "steps":
                    self._fold(stretch, size)
                else:
                    self._thin(stretch, size)
                yield
        size = self._limits.slice_rows
        while self._samples.fresh >= size and self._thin_samples(size):
            yield

    def _fold(self, stretch: RetainedRows, size: int) -> None:
        found = self._db.execute(
            f"SELECT rowid, {', '.join(COLUMNS)} FROM steps WHERE rank = ? AND rowid > ? ORDER BY rowid LIMIT ?",
            (stretch.key, stretch.cursor, size),
        )
        rows = np.fromiter(chain.from_iterable(found), np.int64).reshape(-1, len(COLUMNS) + 1)
        width_ns = self._limits.window_ns << stretch.level
        firsts, folded = fold(rows[:, 1:], width_ns, self._limits.outlier_share, bridge=stretch.level > 0)
        rowids = rows[:, 0]
        merged = np.diff(np.append(firsts, len(rows))) > 1
        assignments = ", ".join(f"{name} = ?" for name in COLUMNS)
        updates = np.column_stack([folded[merged], rowids[firsts][merged]])
        self._db.executemany(f"UPDATE steps SET {assignments} WHERE rowid = ?", updates.tolist())
        # Deletes a window's rows at once: row by row this took a fifth of the time.
        lasts = rowids[np.append(firsts[1:], len(rows)) - 1]
        gone = np.column_stack([rowids[firsts], lasts])[merged]
        self._db.executemany(
            "DELETE FROM steps WHERE rank = ? AND rowid > ? AND rowid <= ?",
            [(stretch.key, *ends) for ends in gone.tolist()],
        )
        # The last window may continue in the next slice, so the next slice begins with it.
        stretch.moved(len(rows) - 1, len(firsts) - 1, int(rowids[firsts[-1]]) - 1)

    def _thin(self, stretch: RetainedRows, size: int) -> None:
        table = stretch.table
        where = f"{'kind' if table == 'events' else 'rank'} = ?"
        if stretch.label is not None:
            where += f" AND label = {stretch.label:d}"
        where += " AND rowid > ?"
        (last,) = self._db.execute(
            f"SELECT max(rowid) FROM (SELECT rowid FROM {table} WHERE {where} ORDER BY rowid LIMIT ?)",
            (stretch.key, stretch.cursor, size),
        ).fetchone()
        hashed = "step" if table in ("gpu_steps", "comm", "collectives") else "rowid"
        deleted = self._db.execute(
            f"DELETE FROM {table} WHERE {where} AND rowid <= ? AND (({hashed} * {_HASH}) & {_HASH_SPACE - 1}) >= ?",
            (stretch.key, stretch.cursor, last, _HASH_SPACE >> stretch.level),
        ).rowcount
        stretch.moved(size, size - deleted, last)

    def _leave_processes_out(self) -> None:
        """Deletes the oldest ended processes above the limit, failed ones and ranks last. Stores their count and latest end."""
        self._processes = 0
        (rows,) = self._db.execute("SELECT count(*) FROM processes").fetchone()
        gone = self._db.execute(
            "SELECT rowid, ended_ns FROM processes WHERE ended_ns IS NOT NULL ORDER BY role = 'rank', oom_killed "
            "OR exit_signal IS NOT NULL OR coalesce(exit_code, clean_exit = 0, 0) != 0, ended_ns LIMIT ?",
            (max(0, rows - self._limits.processes),),
        ).fetchall()
        if not gone:
            return
        self._db.executemany("DELETE FROM processes WHERE rowid = ?", [(rowid,) for rowid, _ in gone])
        self._processes_left_out += len(gone)
        self._left_out_until_ns = max(self._left_out_until_ns, *(ended_ns for _, ended_ns in gone))
        counts = {"processes_left_out": self._processes_left_out, "left_out_until_ns": self._left_out_until_ns}
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(k, str(n)) for k, n in counts.items()])
        reason = f"{self._processes_left_out} processes have ended and are no longer listed: the newest are, and those that failed"
        self._db.execute(
            "INSERT OR REPLACE INTO gaps VALUES ('processes', 'ended', ?, 'persistent_workers=True starts fewer')",
            (reason,),
        )

    def _thin_samples(self, size: int) -> bool:
        """Keeps every series' first reading in each window of the oldest fresh samples; False if none of them are due."""
        samples = self._samples
        found = self._db.execute(
            "SELECT rowid, t_ns, metric FROM samples WHERE rowid > ? ORDER BY rowid LIMIT ?", (samples.cursor, size)
        ).fetchall()
        recent = found[-1][1] > self._newest_sample_ns - self._limits.raw_samples_ns
        if recent and samples.fresh < samples.raw_rows + size:
            return False
        width_ns = self._limits.thin_sample_ns << samples.level
        gone = []
        for rowid, t_ns, metric in found:
            window = t_ns // width_ns
            if self._kept_window.get(metric) == window:
                gone.append((rowid,))
            else:
                self._kept_window[metric] = window
        self._db.executemany("DELETE FROM samples WHERE rowid = ?", gone)
        samples.moved(len(found), len(found) - len(gone), found[-1][0])
        if samples.cursor == 0 or len(self._kept_window) > _WINDOWS_MAX:
            self._kept_window.clear()  # this keeps one extra reading per series
        return True
