"""A rank's part in stalls: where it stood, its line, the collective that it was in, and the latest calls in torch's flight recorder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from rn50_advisor.advisor.analysis.comm.flight_dumps import Recorded, entries
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.advisor.model.wording.rank_words import in_phase
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.collective_documents import FlightDump
from rn50_advisor.probes.documents.event_documents import (
    CallUnderWay,
    FlightDumps,
    StalledRankRow,
    StallEnd,
    StallSeen,
)

_FRAMES_SHOWN = 12
FLIGHT = "collectives in the flight recorder"


def add_stalls(book: TraceBook, pid: int, rank: int, recording: Recording) -> None:
    """Adds each stall as the rank was last seen in it, and when it called its latest collectives."""
    seen: dict[Any, tuple[int, StalledRankRow]] = {}
    for event in events_of(recording.events, StallSeen):
        for row in event.data.get("ranks", ()):
            if row["rank"] == rank:
                seen[event.data.get("id")] = event.t_ns, row
    if seen:
        _add_seen(book, pid, recording, seen)
    _add_flight(book, pid, rank, recording)


def _add_seen(book: TraceBook, pid: int, recording: Recording, seen: dict[Any, tuple[int, StalledRankRow]]) -> None:
    ends = {event.data.get("id"): event.t_ns for event in events_of(recording.events, StallEnd)}
    track, last = book.thread(pid, "stalls"), 0
    for number, (seen_ns, row) in sorted(seen.items(), key=lambda item: item[1][0]):
        end = max(seen_ns, ends.get(number, seen_ns))
        start = max(last, int(row.get("since_ns") or seen_ns - round(1e9 * row.get("since_s", 0.0))))
        if end <= start:
            continue
        call, user = row.get("collective") or CallUnderWay(), row.get("user")
        args = {
            "step": row.get("step"),
            "phase": row.get("phase"),
            "line": f"{user.get('file')}:{user.get('line')} in {user.get('function')}" if user else None,
            "waits in the kernel in": row.get("wchan"),
            "thread state": row.get("state"),
            "stack": _stack(row.get("frames", ())) or None,
            "ended": number in ends,
        }
        book.slice(track, f"stalled {in_phase(row.get('phase', ''))}", (start, end), "stall", args)
        inside_ns = round(1e9 * (call.get("inside_s") or 0.0))
        if inside_ns > 0:
            about = {"number": call.get("begun"), "group": call.get("group"), "ranks": call.get("size")}
            begin = max(start, seen_ns - inside_ns)
            book.slice(track, str(call.get("kind") or "collective"), (begin, end), "collective", about)
        last = end


def _stack(frames: Sequence[StackFrame]) -> list[str]:
    return [f"{one.get('function')} ({one.get('file')}:{one.get('line')})" for one in frames[:_FRAMES_SHOWN]]


def _add_flight(book: TraceBook, pid: int, rank: int, recording: Recording) -> None:
    """Calls by the time of their making, each once; its last state counts. Torch notes the wall clock, the run has one anchor of it."""
    calls: dict[tuple[str, int], Recorded] = {}
    for dump in _dumps(rank, recording):
        calls |= {(call.group, call.number): call for call in entries(dump)}
    meta = recording.meta
    ahead_ns = meta.started_ns - round(1e9 * meta.started_unix_s)
    placed = sorted((call.created_ns + ahead_ns, key) for key, call in calls.items())
    placed = [(t_ns, key) for t_ns, key in placed if meta.started_ns <= t_ns <= meta.last_ns]
    if not placed:
        return
    track = book.thread(pid, FLIGHT)
    for t_ns, key in placed:
        call = calls[key]
        args = {
            "op": call.kind,
            "number": call.number,
            "group": call.group,
            "state": call.state,
            "elements": sum(map(math.prod, call.sizes)) or None,
            "sizes": [list(size) for size in call.sizes] or None,
        }
        book.instant(track, f"{call.kind} {call.number}", t_ns, "collective", args)


def _dumps(rank: int, recording: Recording) -> Iterator[FlightDump]:
    """The rank's dumps, the latest last: those of stalls, and that of the watchdog that ended the job."""
    for event in events_of(recording.events, StallSeen):
        for row in event.data.get("ranks", ()):
            if row["rank"] == rank:
                yield from row.get("flight", ())
    for ended in events_of(recording.events, FlightDumps):
        if dump := ended.data.get("ranks", {}).get(str(rank)):
            yield dump
