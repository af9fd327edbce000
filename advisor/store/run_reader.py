"""Reads a run file or a bundle into a `Recording`; `cut` returns its state at an earlier moment."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, Event, Meta, Process, Recording, Role, Series, Source, Table
from rn50_advisor.advisor.store.document_checks import DOCUMENTS, misfit
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, UnreadableTrials, read_tried
from rn50_advisor.advisor.store.replay import cut
from rn50_advisor.advisor.store.run_access import find_database, open_database, table_names
from rn50_advisor.advisor.store.run_bundle import is_bundle, unpack_bundle
from rn50_advisor.advisor.store.schema import BESIDE, LATER_COLUMNS, RING_TABLES
from rn50_advisor.advisor.store.typed_rows import (
    RANK_MAX,
    TIME_MAX,
    Corrupt,
    LeftOut,
    check_numbers,
    check_times,
    only_numbers,
    rows,
)
from rn50_advisor.probes.documents.bounded_numbers import Number
from rn50_advisor.probes.documents.event_documents import EventDocument
from rn50_advisor.probes.documents.loader_documents import PartName
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import FIELDS, SPAN_LABELS

__all__ = ["cut", "read_recording"]

MADE_ANEW = "rn50-advisor try RUN -- COMMAND measures the fixes of the run"
LIVE_SAMPLES = 200_000  # limit for a live screen, which reads every second: about 0.2 s
FIRST_SAMPLES = 50_000  # minutes of a node's samples
FIRST_ROWS = 500  # of each of a rank's tables: the first seconds of most jobs
# Ring tables are in order of arrival. Batches arrive worker by worker and become a timeline only when sorted.
_ORDER_COLUMN = {
    "steps": "t_start_ns",
    "batches": "t_end_ns",
    "spans": "t_start_ns",
    "looks": "t_end_ns",
    "parts": "t_end_ns",
}
_SAMPLE = np.dtype([("t_ns", np.int64), ("series", np.int64), ("value", np.float64)])
_META_TYPES: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "cwd", "host", "advisor_version"), str),
    **dict.fromkeys(("launch_error", "recording_stopped_reason"), (str, type(None))),
    **dict.fromkeys(("started_ns", "last_ns", "processes_left_out"), int),
    **dict.fromkeys(
        ("left_out_until_ns", "ended_ns", "exit_code", "exit_signal", "recording_stopped_ns"), (int, type(None))
    ),
    **dict.fromkeys(("environment", "agent"), dict),
    "argv": list,
    "started_unix_s": (int, float),
}


def read_recording(
    path: Path, *, recent_steps: int | None = None, shown_as: Path | None = None, beginning: bool = False
) -> Recording:
    """Reads the run in `path`: its folder, its run file, or a bundle. Raises NotARun, whose message names `shown_as`.

    `recent_steps`, for the live screen: reads only this many latest rows of each rank's tables, and only samples of the
    same time (at most LIVE_SAMPLES).
    `beginning`, for the first report of a replay: reads only the earliest FIRST_ROWS and FIRST_SAMPLES.
    """
    if path.is_file() and is_bundle(path):
        with tempfile.TemporaryDirectory(prefix="rn50-unpacked-") as folder:
            return _read(unpack_bundle(path, Path(folder)), path, recent_steps, beginning)
    return _read(path, shown_as or path, recent_steps, beginning)


def is_whole(recording: Recording) -> bool:
    """False if a reading of the beginning may have left rows or samples out; traces are always read whole."""
    read = sum(series.t_ns.size for series in recording.samples.values())
    tables = (getattr(recording, table) for table in RING_TABLES.values())
    longest = max((len(rows) for table in tables for rows in table.values()), default=0)
    # Half: rows with invalid values were dropped.
    return recording.meta.traced or (read < FIRST_SAMPLES // 2 and longest < FIRST_ROWS // 2)


def _read(path: Path, shown_path: Path, recent: int | None, beginning: bool) -> Recording:
    database = find_database(path)
    with open_database(database) as db:
        try:
            recording = _recording(db, recent, beginning)
        except (Corrupt, RecursionError, MemoryError) as error:
            why = str(error) or "reading it would need more memory than there is"
            raise NotARun(f"{shown_path} is damaged: {why:.200}") from error
    return _with_trials(recording, database.parent)


def _with_trials(recording: Recording, folder: Path) -> Recording:
    try:
        return replace(recording, tried=read_tried(folder, recording.meta.started_unix_s))
    except UnreadableTrials as why:
        gap = ProbeGap("trials", "job", f"{TRIED_NAME} beside the run is not shown: {why}", MADE_ANEW)
        return replace(recording, gaps=(*recording.gaps, gap))


def _recording(db: sqlite3.Connection, recent: int | None, beginning: bool) -> Recording:
    left_out = LeftOut()
    present = table_names(db)
    tables = {
        table: _ring_table(db, table, FIELDS[kind], recent, beginning) if table in present else {}
        for kind, table in RING_TABLES.items()
    }
    steps = tables["steps"]
    since_ns = None
    if recent is not None:
        since_ns = min((int(rows["t_start_ns"][0]) for rows in steps.values()), default=0)
    samples = _samples(db, since_ns, FIRST_SAMPLES if beginning else None)
    events = _events(db, left_out)
    latest = [int(series.t_ns[-1]) for series in samples.values()]
    latest += [int(rows["t_end_ns"][-1]) for rows in steps.values()]
    latest += [event.t_ns for event in events]
    meta = _meta(db, max(latest, default=0), left_out)
    facts = {
        pid: left_out.trimmed("facts", pid, _object("facts", pid, value), RankFacts)
        for pid, value in rows(db, "facts", ("pid", "value"))
    }
    part_names = _part_names(db, left_out)
    return Recording(
        meta=meta,
        processes=_processes(db),
        facts=facts,
        steps=steps,
        gpu_steps=tables["gpu_steps"],
        comm=tables["comm"],
        collectives=tables["collectives"],
        spans=tables["spans"],
        batches=tables["batches"],
        looks=tables["looks"],
        parts=tables["parts"],
        part_names=part_names,
        samples=samples,
        events=events,
        gaps=(
            *(ProbeGap(*row) for row in rows(db, "gaps", ("metric", "scope", "reason", "hint"), "ORDER BY 1, 2")),
            *left_out.gaps(),
        ),
        sources=_sources(db),
        positions={
            rank: (phase, step, since)
            for rank, phase, step, since in rows(
                db, "positions", ("rank", "phase", "step", "since_ns"), "ORDER BY rank"
            )
        },
    )


def _events(db: sqlite3.Connection, left_out: LeftOut) -> tuple[AnyEvent, ...]:
    events = []
    for t_ns, kind, pid, rank, text in rows(db, "events", ("t_ns", "kind", "pid", "rank", "data"), "ORDER BY t_ns"):
        data = _object("events", f"at {t_ns}", text)
        if kind in DOCUMENTS and (wrong := misfit(data, DOCUMENTS[kind])):
            left_out.note("events", kind, wrong)
        else:
            events.append(Event(t_ns, kind, pid, rank, cast(EventDocument, data)))
    return tuple(events)


def _part_names(db: sqlite3.Connection, left_out: LeftOut) -> dict[int, PartName]:
    if "part_names" not in table_names(db):
        return {}
    found = rows(db, "part_names", ("part", "value"))
    return {
        part: left_out.trimmed("part_names", part, _object("part_names", part, value), PartName)
        for part, value in found
    }


def _object(table: str, row: object, text: str) -> dict[str, Any]:
    """Parses a JSON object. Raises Corrupt for anything else: analysis assumes mappings."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"table {table}, row {row}: {error}") from error
    if not isinstance(value, dict):
        raise Corrupt(f"table {table}, row {row}: {text[:40]!r} is not a JSON object")
    return value


def _ring_table(
    db: sqlite3.Connection, table: str, names: tuple[str, ...], recent: int | None, beginning: bool
) -> dict[int, Table]:
    columns = (*names, *BESIDE[table])
    dtype = np.dtype([(name, np.int64) for name in columns])
    query = f"SELECT {', '.join(_asked(db, table, columns))} FROM {table} WHERE rank = ? ORDER BY rowid"
    if recent is not None:
        query += f" DESC LIMIT {int(recent)}"
    elif beginning:
        query += f" LIMIT {FIRST_ROWS}"
    result = {}
    for rank in _ranks(db, table):
        with only_numbers(table):
            numbers = np.fromiter(chain.from_iterable(db.execute(query, (rank,))), np.int64)
        check_numbers(table, rank, columns, numbers.reshape(-1, len(columns)))
        found = numbers.view(dtype)[:: -1 if recent is not None else 1]
        if table == "spans":
            found = found[(found["label"] >= 0) & (found["label"] < len(SPAN_LABELS))]  # a newer advisor has more
        if table in _ORDER_COLUMN:
            found = found[np.argsort(found[_ORDER_COLUMN[table]], kind="stable")]
        if len(found):
            result[rank] = found
    return result


def _asked(db: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[str]:
    """Returns the columns to select; columns that were added after this run read as -1."""
    later = set(LATER_COLUMNS.get(table, ()))
    if later:
        later -= {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return [f"-1 AS {name}" if name in later else name for name in columns]


def _ranks(db: sqlite3.Connection, table: str) -> list[int]:
    # One index lookup per rank; DISTINCT would scan the whole index.
    ranks: list[int] = []
    (rank,) = db.execute(f"SELECT min(rank) FROM {table}").fetchone()
    while rank is not None:
        if not isinstance(rank, int) or not 0 <= rank <= RANK_MAX:
            raise Corrupt(f"table {table}: {rank!r:.40} is no rank")
        ranks.append(rank)
        (rank,) = db.execute(f"SELECT min(rank) FROM {table} WHERE rank > ?", (rank,)).fetchone()
    return ranks


def _samples(db: sqlite3.Connection, since_ns: int | None, first: int | None) -> dict[tuple[str, str], Series]:
    if since_ns is None:
        limit = -1 if first is None else first  # -1: none
        found = db.execute("SELECT t_ns, metric, value FROM samples ORDER BY rowid LIMIT ?", (limit,))
    else:
        (last,) = db.execute("SELECT coalesce(max(rowid), 0) FROM samples").fetchone()
        found = db.execute(
            "SELECT t_ns, metric, value FROM samples WHERE rowid > ? AND t_ns >= ? ORDER BY rowid",
            (last - LIVE_SAMPLES, since_ns),
        )
    with only_numbers("samples"):
        readings = np.fromiter(found, _SAMPLE)
    check_times("samples", readings["t_ns"])
    readings = readings[np.isfinite(readings["value"])]
    readings = readings[np.argsort(readings["series"], kind="stable")]
    series, firsts = np.unique(readings["series"], return_index=True)
    names = {number: (metric, scope) for number, metric, scope in rows(db, "series", ("id", "metric", "scope"))}
    if unnamed := set(series.tolist()) - names.keys():
        raise Corrupt(f"table samples: there is no series {min(unnamed)}")
    parts = np.split(readings, firsts[1:])
    return {
        names[int(number)]: Series(np.ascontiguousarray(part["t_ns"]), np.ascontiguousarray(part["value"]))
        for number, part in zip(series, parts, strict=False)  # without samples there is one empty part
    }


def _processes(db: sqlite3.Connection) -> tuple[Process, ...]:
    names = [field.name for field in fields(Process)]
    found = rows(db, "processes", tuple(names), "ORDER BY first_seen_ns, pid")
    return tuple(_process(dict(zip(names, row, strict=True))) for row in found)


def _process(row: Mapping[str, Any]) -> Process:
    if row["role"] not in get_args(Role):
        raise Corrupt(f"table processes, pid {row['pid']}: {row['role']!r:.40} is no role")
    clean = row["clean_exit"]
    truths = {"clean_exit": None if clean is None else bool(clean), "oom_killed": bool(row["oom_killed"])}
    return Process(**{**row, "role": cast(Role, row["role"]), **truths})


def _sources(db: sqlite3.Connection) -> tuple[Source, ...]:
    """Source files of the run; empty if an older advisor recorded it."""
    if "sources" not in table_names(db):
        return ()
    found = rows(db, "sources", ("path", "sha256", "text", "edited"), "ORDER BY path")
    return tuple(Source(path, sha256, text, bool(edited)) for path, sha256, text, edited in found)


def _meta(db: sqlite3.Connection, latest_ns: int, left_out: LeftOut) -> Meta:
    """Reads meta. Unknown keys come from a newer advisor and are ignored; missing values stay empty. Raises Corrupt."""
    stored = {key: _meta_value(key, value) for key, value in rows(db, "meta", ("key", "value"))}
    empty: dict[str, Any] = {"name": "", "argv": (), "cwd": "", "host": "", "started_unix_s": 0.0, "started_ns": 0}
    known = {field.name: stored[field.name] for field in fields(Meta) if field.name in stored}
    values = {**empty, **known}
    for name, value in known.items():
        if not isinstance(value, _META_TYPES[name]) or (isinstance(value, (int, float)) and not abs(value) <= TIME_MAX):
            raise Corrupt(f"table meta: {name} is {value!r:.40}")
    values["argv"] = tuple(str(word) for word in values["argv"])
    values["environment"] = left_out.trimmed("meta", "environment", values.get("environment", {}), MachineFacts)
    if wrong := misfit(values.get("agent", {}), dict[str, Number]):
        left_out.note("meta", "agent", wrong)
        values["agent"] = {}
    values["last_ns"] = max(values.get("last_ns") or 0, values["started_ns"], latest_ns)
    return Meta(**values)


def _meta_value(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"table meta, {key}: {error}") from error
