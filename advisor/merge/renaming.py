"""Converts one node's recording to the terms of the whole job: times on the first node's clock, and names that no other node has.

Pids and GPU indices are counted per host. Those of later nodes are shifted up, so that they still distinguish hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rn50_advisor.advisor.merge.node_clocks import to_first
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import (
    NODE_PIDS,
    AnyEvent,
    Clock,
    Meta,
    Process,
    Recording,
    Series,
    Table,
    data_of,
)
from rn50_advisor.advisor.store.schema import RING_TABLES
from rn50_advisor.probes.documents.event_documents import StalledRankRow, StallEnd, StallSeen
from rn50_advisor.probes.documents.machine_documents import MachineFacts

TABLES = tuple(RING_TABLES.values())
_GPU_SCOPE = re.compile(r"(gpu:|mig:)(\d+)")


class Renaming:
    """Renames one node's recording. `ranks`: new rank numbers, if the node's own collide with those of others."""

    def __init__(
        self, number: int, clock: Clock, *, first_gpu: int = 0, ranks: Mapping[int, int] | None = None
    ) -> None:
        self._number = number
        self._clock = clock
        self._first_gpu = first_gpu
        self._ranks = ranks or {}

    def recording(self, r: Recording) -> Recording:
        moved: dict[str, Any] = {name: self._tables(getattr(r, name)) for name in TABLES}
        return replace(
            r,
            meta=self._meta(r.meta),
            processes=tuple(self._process(p) for p in r.processes),
            facts={self.pid(pid): facts for pid, facts in r.facts.items()},
            samples={
                (m, self.scope(s)): Series(to_first(self._clock, v.t_ns), v.value) for (m, s), v in r.samples.items()
            },
            events=tuple(self._event(e) for e in r.events),
            gaps=tuple(ProbeGap(g.metric, self.scope(g.scope), g.reason, g.hint) for g in r.gaps),
            positions={
                self.rank(rank): (phase, step, self.t(since)) for rank, (phase, step, since) in r.positions.items()
            },
            **moved,
        )

    def pid(self, pid: int) -> int:
        return pid + NODE_PIDS * self._number

    def rank(self, rank: int) -> int:
        return self._ranks.get(rank, rank)

    def t(self, t_ns: int) -> int:
        return int(to_first(self._clock, np.array([t_ns], np.int64))[0])

    def scope(self, scope: str) -> str:
        if scope.startswith("pid:") and scope[4:].isdigit():
            return f"pid:{self.pid(int(scope[4:]))}"
        gpu = _GPU_SCOPE.match(scope)
        return f"{gpu[1]}{int(gpu[2]) + self._first_gpu}{scope[gpu.end() :]}" if gpu else scope

    def _maybe(self, rename: Callable[[int], int], value: int | None) -> int | None:
        return None if value is None else rename(value)

    def _tables(self, tables: Mapping[int, Table]) -> dict[int, Table]:
        return {self.rank(rank): self._table(table) for rank, table in tables.items()}

    def _table(self, table: Table) -> Table:
        names = table.dtype.names or ()
        moved: Table = table.copy()
        for name in names:
            if name.startswith("t_") and name.endswith("_ns"):
                moved[name] = to_first(self._clock, table[name])
        if "pid" in names:
            moved["pid"] += NODE_PIDS * self._number
        return moved

    def _process(self, p: Process) -> Process:
        return replace(
            p,
            pid=self.pid(p.pid),
            parent_pid=self.pid(p.parent_pid),
            rank=self._maybe(self.rank, p.rank),
            first_seen_ns=self.t(p.first_seen_ns),
            ended_ns=self._maybe(self.t, p.ended_ns),
        )

    def _event(self, e: AnyEvent) -> AnyEvent:
        data = e.data
        if (stall := data_of(e, StallSeen)) is not None:
            seen: StallSeen = {**stall, "id": f"{stall.get('id')}@{self._number}"}
            if rows := [self._row(row, e.t_ns) for row in stall.get("ranks", ())]:
                seen["ranks"] = rows
            data = seen
        elif (end := data_of(e, StallEnd)) is not None:
            ended: StallEnd = {**end, "id": f"{end.get('id')}@{self._number}"}
            data = ended
        pid, rank = self._maybe(self.pid, e.pid), self._maybe(self.rank, e.rank)
        return replace(e, t_ns=self.t(e.t_ns), pid=pid, rank=rank, data=data)

    def _row(self, row: StalledRankRow, seen_ns: int) -> StalledRankRow:
        return {**row, "rank": self.rank(row["rank"]), "since_ns": self.t(row.get("since_ns", seen_ns))}

    def _meta(self, m: Meta) -> Meta:
        environment: MachineFacts = {**m.environment}
        first = self._first_gpu
        if gpus := m.environment.get("gpus"):
            environment["gpus"] = [{**g, "index": g["index"] + first, "index_on_host": g["index"]} for g in gpus]
        if paths := m.environment.get("gpu_paths"):
            environment["gpu_paths"] = [{**path, "a": path["a"] + first, "b": path["b"] + first} for path in paths]
        return replace(
            m,
            started_ns=self.t(m.started_ns),
            last_ns=self.t(m.last_ns),
            ended_ns=self._maybe(self.t, m.ended_ns),
            recording_stopped_ns=self._maybe(self.t, m.recording_stopped_ns),
            left_out_until_ns=self._maybe(self.t, m.left_out_until_ns),
            environment=environment,
        )
