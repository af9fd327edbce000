"""Cuts a recording to its state at an earlier moment, for replay. Pure and cheap: tables are sliced, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rn50_advisor.advisor.model.recording import Meta, Node, Process, Recording, Series, Table
from rn50_advisor.probes.rank.layout import SPAN_LABELS

# The exclusive phases of a step, in order.
_PHASES = ("input_wait", "forward", "backward", "clip", "optimizer", "gap", "evaluation", "checkpoint")
_PLACES = ("evaluation", "checkpoint")  # span labels that are positions of a rank; other spans are inside its phases


def cut(recording: Recording, until_ns: int) -> Recording:
    """Returns the recording as of `until_ns`. GPU and communication records have no timestamp and are kept with their step."""
    steps = {rank: rows for rank, table in recording.steps.items() if len(rows := _ended(table, until_ns))}
    spans = {rank: rows for rank, table in recording.spans.items() if len(rows := table[table["t_end_ns"] <= until_ns])}
    processes = tuple(_alive_at(p, until_ns) for p in recording.processes if p.first_seen_ns <= until_ns)
    later = {p.pid for p in recording.processes if p.first_seen_ns > until_ns} - {p.pid for p in processes}
    return replace(
        recording,
        meta=_meta_at(recording.meta, until_ns),
        processes=processes,
        facts={pid: facts for pid, facts in recording.facts.items() if pid not in later},
        steps=steps,
        gpu_steps=_up_to_step(recording.gpu_steps, steps),
        comm=_up_to_step(recording.comm, steps),
        collectives=_up_to_step(recording.collectives, steps),
        spans=spans,
        batches={rank: rows for rank, table in recording.batches.items() if len(rows := _ended(table, until_ns))},
        looks={rank: rows for rank, table in recording.looks.items() if len(rows := _ended(table, until_ns))},
        parts={rank: rows for rank, table in recording.parts.items() if len(rows := _ended(table, until_ns))},
        samples=_samples_at(recording, until_ns),
        events=tuple(event for event in recording.events if event.t_ns <= until_ns),
        positions=_positions_at(recording, until_ns),
        nodes=tuple(_node_at(node, until_ns) for node in recording.nodes),
    )


def _node_at(node: Node, until_ns: int) -> Node:
    lost_ns = node.lost_ns if node.lost_ns is not None and node.lost_ns <= until_ns else None
    return replace(node, recording=cut(node.recording, until_ns), lost_ns=lost_ns)


def _ended(table: Table, until_ns: int) -> Table:
    # Rows ascend by end: steps of a rank follow one another, and batches are sorted by their end.
    return table[: int(np.searchsorted(table["t_end_ns"], until_ns, side="right"))]


def _up_to_step(tables: Mapping[int, Table], steps: Mapping[int, Table]) -> dict[int, Table]:
    kept = {}
    for rank, table in tables.items():
        if rank in steps:
            last = steps[rank][-1]
            rows = table[table["step"] < last["step"] + last["count"]]
            if len(rows):
                kept[rank] = rows
    return kept


def _samples_at(recording: Recording, until_ns: int) -> dict[tuple[str, str], Series]:
    kept = {}
    for name, series in recording.samples.items():
        end = int(np.searchsorted(series.t_ns, until_ns, side="right"))
        if end:
            kept[name] = Series(series.t_ns[:end], series.value[:end])
    return kept


def _alive_at(process: Process, until_ns: int) -> Process:
    if process.ended_ns is not None and process.ended_ns <= until_ns:
        return process
    return replace(process, ended_ns=None, exit_code=None, exit_signal=None, clean_exit=None, oom_killed=False)


def _meta_at(meta: Meta, until_ns: int) -> Meta:
    meta = replace(meta, last_ns=min(meta.last_ns, until_ns))
    if meta.ended_ns is None or meta.ended_ns > until_ns:
        meta = replace(meta, ended_ns=None, exit_code=None, exit_signal=None)
    if meta.recording_stopped_ns is not None and meta.recording_stopped_ns > until_ns:
        meta = replace(meta, recording_stopped_ns=None, recording_stopped_reason=None)
    return meta


def _positions_at(recording: Recording, until_ns: int) -> dict[int, tuple[str, int, int]]:
    positions = {}
    for rank in sorted(recording.positions.keys() | recording.steps.keys()):
        last = recording.positions.get(rank)
        if last is not None and last[2] <= until_ns:
            positions[rank] = last
        elif place := _place(rank, recording, until_ns):
            positions[rank] = place
    return positions


def _place(rank: int, recording: Recording, until_ns: int) -> tuple[str, int, int] | None:
    """Returns a rank's phase, its step and the phase's start, from the span or step under way.

    Before the first step the phase is "start", since the rank was first seen.
    """
    spans, steps = recording.spans.get(rank), recording.steps.get(rank)
    if spans is not None:
        for span in spans[(spans["t_start_ns"] <= until_ns) & (until_ns < spans["t_end_ns"])]:
            if (label := SPAN_LABELS[int(span["label"])]) in _PLACES:
                return label, int(span["step"]), int(span["t_start_ns"])
    after = int(np.searchsorted(steps["t_start_ns"], until_ns, side="right")) if steps is not None else 0
    if steps is None or after == 0:
        seen = [p.first_seen_ns for p in recording.processes if p.rank == rank and p.role == "rank"]
        return ("start", 0, min(seen)) if seen and min(seen) <= until_ns else None
    row = steps[after - 1]
    if until_ns >= row["t_end_ns"]:  # a lost record, or the time after the last step
        return "gap", int(row["step"] + row["count"]), int(row["t_end_ns"])
    return _phase_within(row, until_ns)


def _phase_within(row: np.void, until_ns: int) -> tuple[str, int, int]:
    """Returns (phase, step, start of the phase), given the order of the phases; a folded row counts as its mean step, repeated."""
    count = int(row["count"])
    step_ns = max(1, (int(row["t_end_ns"]) - int(row["t_start_ns"])) // count)
    passed = min(count - 1, (until_ns - int(row["t_start_ns"])) // step_ns)
    begin_ns = int(row["t_start_ns"]) + passed * step_ns
    phase, since_ns = _PHASES[0], begin_ns
    for name in _PHASES:
        took_ns = int(row[f"{name}_ns"]) // count
        if took_ns:
            phase, since_ns = name, begin_ns
        begin_ns += took_ns
        if until_ns < begin_ns:
            break
    return phase, int(row["step"]) + passed, since_ns
