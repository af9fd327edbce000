"""Holds the data that a node has not sent yet. The writer thread fills it, the sender thread empties it; always bounded."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from rn50_advisor.advisor.merge.node_frames import SENT_TABLES, VERSION, Rows, as_rows, sent_tables
from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import AnyEvent, Process, data_of, events_of
from rn50_advisor.advisor.store.schema import RING_TABLES
from rn50_advisor.advisor.store.secrets.masking import redact_json, redact_text
from rn50_advisor.probes.documents.event_documents import (
    KINDS,
    AgentCrash,
    FlightDumps,
    NotedDeath,
    OomKill,
    PrintedLines,
    RecorderCost,
    ShedProbe,
    StallEnd,
    StallSeen,
)
from rn50_advisor.probes.rank.layout import KIND_BATCH

_ROWS_MAX = 20_000  # per rank's table between two frames: ten seconds of half-millisecond steps
_EVENTS_KEPT = 64
_PROCESSES_KEPT = 512
_GAPS_KEPT = 64
_FACTS_BYTES = 16_384  # per rank; loaders with long arguments make the facts large
_TOLD = (StallSeen, StallEnd, NotedDeath, OomKill, ShedProbe, RecorderCost, AgentCrash, PrintedLines, FlightDumps)
_SAID = frozenset(KINDS[document] for document in _TOLD)
_LOOKS_KEPT = 2  # per stall: the last two suffice, and a hang of hours would have hundreds
_EVENTS_BYTES = (
    4 << 20
)  # older events beyond this lose their stacks and dumps: the receiver unpacks no more than 8 MiB per frame
_HEAVY = ("flight", "frames")  # the large entries of a rank in a stall
# Metrics that the merging side shows or judges by; all others are only in the node's own run file.
_HOST_METRICS = frozenset(
    (
        "cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s", "cpu.cores", "cpu.allowed_cores", "job.cpu_s", "mem.total_bytes",
        "mem.available_bytes", "mem.swap_in_bytes", "mem.shm_used_bytes", "mem.shm_total_bytes", "psi.mem_some_s", "disk.read_bytes",
        "disk.busy_s", "net.tx_bytes", "net.rx_bytes", "net.speed_mbps",
    )
)  # fmt: skip
_RANK_METRICS = ("cgroup.", "proc.threads_delay_s", "proc.held_bytes", "gpu.")


class Outbox:
    """Holds unsent data, copied or immutable. `steps_frame` removes what it returns; `state_frame` returns the current state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[int, str], list[Rows]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._samples: dict[str, dict[str, float]] = {}
        self._positions: dict[int, tuple[str, int, int]] = {}
        self._meta: dict[str, Any] = {}
        self._processes: dict[tuple[int, int], Process] = {}
        self._facts: dict[int, Mapping[str, Any]] = {}
        self._events: deque[AnyEvent] = deque(maxlen=_EVENTS_KEPT)
        self._gaps: dict[tuple[str, str], ProbeGap] = {}
        self.changed = False  # the state changed since the last state frame
        self.urgent = False  # and the change cannot wait
        self.left_out = 0

    def put_records(self, kind: int, rank: int, rows: Sequence[tuple[int, tuple[int, ...]]], pid: int | None) -> None:
        table = RING_TABLES[kind]
        if table not in SENT_TABLES or not rows:
            return
        if kind == KIND_BATCH:
            rows = rows[-8:]
        key = (rank, table)
        with self._lock:
            if self._counts.get(key, 0) + len(rows) > _ROWS_MAX:
                self.left_out += len(rows)
                return
            self._counts[key] = self._counts.get(key, 0) + len(rows)
            self._rows.setdefault(key, []).append(as_rows(table, rows, pid=pid))

    def put_samples(self, samples: Iterable[Sample]) -> None:
        with self._lock:
            ranks = {f"pid:{p.pid}" for p in self._processes.values() if p.role == "rank"}
            for sample in samples:
                scope = sample.scope
                wanted = sample.metric.startswith(_RANK_METRICS) and (scope in ranks or scope.startswith("gpu:"))
                host = sample.metric in _HOST_METRICS and not scope.startswith("cpu:")
                if (wanted or host) and sample.value == sample.value:
                    self._samples.setdefault(sample.metric, {})[scope] = sample.value

    def put_position(self, rank: int, phase: str, step: int, since_ns: int) -> None:
        with self._lock:
            self._positions[rank] = (phase, step, since_ns)

    def put_meta(self, values: Mapping[str, Any]) -> None:
        self._state(self._meta.update, dict(values))

    def put_process(self, process: Process) -> None:
        if process.role != "other":
            self._state(self._keep_process, process)

    def put_facts(self, pid: int, facts: Mapping[str, Any]) -> None:
        self._state(self._facts.__setitem__, pid, dict(facts))

    def put_event(self, event: AnyEvent) -> None:
        if event.kind in _SAID:
            self._state(self._keep_event, event)
            self.urgent = True

    def put_gap(self, gap: ProbeGap) -> None:
        self._state(self._keep_gap, gap)

    def steps_frame(self, now_ns: int) -> dict[str, Any]:
        """Returns the steps recorded since the last call."""
        with self._lock:
            rows, self._rows, self._counts = self._rows, {}, {}
            samples, self._samples = self._samples, {}
            positions = {str(rank): list(at) for rank, at in self._positions.items()}
        by_rank: dict[int, dict[str, Rows]] = {}
        for (rank, table), parts in rows.items():
            by_rank.setdefault(rank, {})[table] = np.concatenate(parts)
        ranks = {str(rank): sent_tables(tables) for rank, tables in sorted(by_rank.items())}
        return {"v": VERSION, "t": now_ns, "positions": positions, "samples": samples, "ranks": ranks}

    def state_frame(self, now_ns: int) -> dict[str, Any]:
        """Returns the complete state; together with the steps it makes up the run."""
        with self._lock:
            self.changed = self.urgent = False
            events = tuple(self._events)
            trained = {p.pid for p in self._processes.values() if p.role == "rank"}
            state = {
                "v": VERSION,
                "t": now_ns,
                "meta": redact_json({**self._meta, "last_ns": now_ns}, drop_secret_names=True),
                "processes": [
                    [*astuple(p)[:6], redact_text(p.command), *astuple(p)[7:]] for p in self._processes.values()
                ],
                "facts": {str(pid): _short(facts) for pid, facts in self._facts.items() if pid in trained},
                "gaps": redact_json([list(astuple(gap)) for gap in self._gaps.values()]),
            }
        return {**state, "events": _affordable(events)}

    def _state(self, keep: Any, *what: Any) -> None:
        with self._lock:
            keep(*what)
            self.changed = True

    def _keep_process(self, process: Process) -> None:
        self._processes[process.pid, process.first_seen_ns] = process
        if len(self._processes) > _PROCESSES_KEPT:
            ended = [key for key, p in self._processes.items() if p.role == "worker" and p.ended_ns is not None]
            for key in ended[: len(ended) // 2 + 1]:
                del self._processes[key]

    def _keep_event(self, event: AnyEvent) -> None:
        if (stall := data_of(event, StallSeen)) is not None:
            looks = [e for e in events_of(self._events, StallSeen) if e.data.get("id") == stall.get("id")]
            for look in looks[: max(0, len(looks) + 1 - _LOOKS_KEPT)]:
                self._events.remove(look)
        self._events.append(event)

    def _keep_gap(self, gap: ProbeGap) -> None:
        if len(self._gaps) < _GAPS_KEPT or (gap.metric, gap.scope) in self._gaps:
            self._gaps[gap.metric, gap.scope] = gap


def _affordable(events: Sequence[AnyEvent]) -> list[list[Any]]:
    """Returns the latest events whole as far as they fit, since they describe the present; older ones without large entries."""
    rows: list[list[Any]] = []
    left = _EVENTS_BYTES
    for event in reversed(events):
        if left:
            left = max(0, left - len(json.dumps(event.data, default=str)))
        data = dict(event.data) if left else _light(event)
        rows.append([event.t_ns, event.kind, event.pid, event.rank, redact_json(data)])
    return rows[::-1]


def _light(event: AnyEvent) -> dict[str, object]:
    """Returns an event's data without stacks and dumps; ranks in a stall keep their positions."""
    told = {name: value for name, value in event.data.items() if name != "ranks"}  # or a watchdog's dumps
    if (stall := data_of(event, StallSeen)) is not None:
        rows = stall.get("ranks", ())
        told["ranks"] = [{name: value for name, value in row.items() if name not in _HEAVY} for row in rows]
    return told


def _short(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts without their largest entries, to keep frames small; the node's own run file has all of them."""
    kept = dict(redact_json(dict(facts)))
    for name in sorted(kept, key=lambda n: -len(str(kept[n]))):
        if len(str(kept)) <= _FACTS_BYTES:
            break
        del kept[name]
    return kept
