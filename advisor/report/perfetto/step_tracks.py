"""A rank's steps as slices with their phases inside: on the host as marked in the training thread, on the GPU as its stream took them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.model.report import INPUT_OR_FORWARD, PHASE_TITLES
from rn50_advisor.advisor.model.wording.rank_words import PLACES
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, Track
from rn50_advisor.advisor.store.step_folding import COLUMNS, fold
from rn50_advisor.probes.rank.layout import (
    FLAG_CLOCKED,
    FLAG_DEEP,
    FLAG_EPOCH_START,
    FLAG_NO_LOADER,
    FLAG_SKIPPED_UPDATE,
    FLAG_TAIL,
    SPAN_LABELS,
)

TAIL = "after the last step"
START = PLACES["start"]
_FIRST_WINDOW_NS = 1_000_000_000
_OUTLIERS = 0.01  # of the rows that are folded: these stay single steps
_FLAG_WORDS = {
    FLAG_EPOCH_START: "first of an epoch",
    FLAG_SKIPPED_UPDATE: "update skipped by GradScaler",
    FLAG_DEEP: "under torch's profiler",
}
_PHASES = ("input_wait", "forward", "backward", "clip", "optimizer")
_AFTER = ("gap", "evaluation", "checkpoint")
_TITLES = {
    **PHASE_TITLES,
    "clip": PLACES["clip"],
    "evaluation": PHASE_TITLES["gap.evaluation"],
    "checkpoint": PHASE_TITLES["gap.checkpoint"],
}
_ASIDE = {"evaluation": "evaluation", "checkpoint": "checkpoint"}  # labels of spans, and the phase that each is
_MS = {
    "gc_ns": "garbage collection, ms",
    "loader_start_ns": "loader start, ms",
    "run_delay_ns": "waited for a core, ms",
    "fetch_ns": "batches made in this thread, ms",
    "fetch_cpu_ns": "of them on a CPU, ms",
    "compute_system_ns": "forward and backward in the kernel, ms",
    "self_ns": "advisor's own cost, ms",
}
Interval = tuple[int, int]
Part = tuple[str, int, int]  # phase, start and end


@dataclass(slots=True)
class StepPlaces:
    """Where the single steps of a rank lie: step -> phase -> start and end. `rows` counts the slices that are steps."""

    phases: dict[int, dict[str, Interval]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    steps: int = 0


def bounded(rows: Table, most: int) -> tuple[Table, int]:
    """(the rows in order, at most about `most`; the number of steps that now share a slice with others).

    The later half stays as it is; earlier rows are folded into windows of time as long as needed, as the run file folds older steps.
    """
    rows = rows[np.argsort(rows["t_start_ns"], kind="stable")]
    if len(rows) <= most:
        return rows, 0
    whole = np.stack([rows[name] for name in COLUMNS], axis=1).astype(np.int64)
    old, recent = whole[: len(whole) - most // 2], whole[len(whole) - most // 2 :]
    count = COLUMNS.index("count")
    before, width_ns, folded = int((old[:, count] == 1).sum()), _FIRST_WINDOW_NS, old
    while len(folded) > most - most // 2 and width_ns < 1 << 60:
        _, folded = fold(folded, width_ns, _OUTLIERS, bridge=True)
        width_ns *= 2
    kept = np.concatenate([folded, recent])
    table = np.zeros(len(kept), [(name, np.int64) for name in COLUMNS])
    for place, name in enumerate(COLUMNS):
        table[name] = kept[:, place]
    return table, before - int((folded[:, count] == 1).sum())


def add_steps(
    book: TraceBook,
    track: Track,
    rows: Table,
    *,
    comm: Mapping[int, np.void],
    spans: Table | None,
    first_seen_ns: int | None,
) -> StepPlaces:
    """Adds a rank's steps to the thread. `comm`: DDP's stamps by step, if the host's backward contains the exchange."""
    found = StepPlaces()
    aside = _aside(spans)
    end_ns = first_seen_ns if first_seen_ns is not None and len(rows) else None
    if end_ns is not None and end_ns < int(rows[0]["t_start_ns"]):
        _add_between(book, track, (end_ns, int(rows[0]["t_start_ns"])), aside, START)
    previous = 0
    for row in rows:
        start, end = max(int(row["t_start_ns"]), previous), int(row["t_end_ns"])
        if end <= start:
            continue
        if previous and start > previous:
            _add_between(book, track, (previous, start), aside, "")
        parts = list(_parts(row, (start, end), aside, comm.get(int(row["step"]))))
        _add_step(book, track, row, (start, end), parts)
        if not int(row["flags"]) & FLAG_TAIL:
            found.steps += int(row["count"])
            found.starts[int(row["step"])] = start
            if int(row["count"]) == 1:
                found.phases[int(row["step"])] = {name: (a, b) for name, a, b in parts}
        previous = end
    return found


def _aside(spans: Table | None) -> list[tuple[str, int, int]]:
    """Evaluations and checkpoints in order, none of which begins before the one in front of it has ended."""
    found: list[tuple[str, int, int]] = []
    rows = spans[np.argsort(spans["t_start_ns"], kind="stable")] if spans is not None else ()
    for row in rows:
        label = SPAN_LABELS[int(row["label"])] if 0 <= int(row["label"]) < len(SPAN_LABELS) else ""
        start, end = int(row["t_start_ns"]), int(row["t_end_ns"])
        if label in _ASIDE and end > start and (not found or start >= found[-1][2]):
            found.append((_ASIDE[label], start, end))
    return found


def _inside(aside: Sequence[Part], begin: int, end: int) -> list[Part]:
    return [(name, max(a, begin), min(b, end)) for name, a, b in aside if a < end and b > begin]


def _add_between(book: TraceBook, track: Track, span: Interval, aside: Sequence[Part], name: str) -> None:
    """The time before the first step, or between steps of which one was lost."""
    if name:
        book.slice(track, name, span, "phase")
    for phase, a, b in _inside(aside, *span):
        book.slice(track, _TITLES[phase], (a, b), "phase")


def _parts(row: np.void, span: Interval, aside: Sequence[Part], stamps: np.void | None) -> Iterator[Part]:
    """The phases of a row, one after the other; the last ends with the row at the latest."""
    at, end = span
    single, fed = int(row["count"]) == 1, not int(row["flags"]) & FLAG_NO_LOADER
    for phase in _PHASES:
        until = min(end, at + max(0, int(row[f"{phase}_ns"])))
        if until > at:
            name = phase if fed or phase != "forward" else INPUT_OR_FORWARD
            if phase == "backward" and stamps is not None and single:
                exposed = min(until - at, exposed_ns(stamps))
                yield from ((n, a, b) for n, a, b in _split(at, until, exposed) if b > a)
            else:
                yield name, at, until
        at = until
    known = _inside(aside, at, end) if single else []
    if known:
        for name, a, b in known:
            if a > at:
                yield "gap", at, a
            yield name, a, b
            at = b
        if end > at:
            yield "gap", at, end
        return
    for phase in _AFTER:
        until = min(end, at + max(0, int(row[f"{phase}_ns"])))
        if until > at:
            yield phase, at, until
        at = until


def exposed_ns(stamps: np.void) -> int:
    """The part of an exchange's device time that the backward pass does not hide."""
    return max(0, int(stamps["comm_ns"]) - int(stamps["overlap_ns"]))


def _split(begin: int, end: int, exposed: int) -> tuple[Part, Part]:
    return ("backward", begin, end - exposed), ("comm_exposed", end - exposed, end)


def _add_step(book: TraceBook, track: Track, row: np.void, span: Interval, parts: Sequence[Part]) -> None:
    count, step, flags = int(row["count"]), int(row["step"]), int(row["flags"])
    tail = bool(flags & FLAG_TAIL)
    name = TAIL if tail else f"step {step}" if count == 1 else f"steps {step}–{step + count - 1}"
    seconds = (span[1] - span[0]) / 1e9
    samples = int(row["samples"])
    args: dict[str, Any] = {} if tail else {"step": step, "steps": count}
    if samples > 0:
        args |= {"samples": samples, "samples per second": samples / seconds}
    if int(row["micro_batches"]) > count:
        args["micro-batches"] = int(row["micro_batches"])
    if int(row["loader"]) >= 0:
        args["loader"] = int(row["loader"])
    for bit, words in _FLAG_WORDS.items():
        if flags & bit:
            args[words] = True
    args |= {words: int(row[column]) / 1e6 for column, words in _MS.items() if int(row[column]) > 0}
    book.slice(track, name, span, "after" if tail else "step", args)
    clocked = bool(flags & FLAG_CLOCKED) and count == 1
    for phase, a, b in parts:
        column = f"{phase}_cpu_ns"
        cpu = int(row[column]) if clocked and column in (row.dtype.names or ()) else 0
        book.slice(track, _TITLES[phase], (a, b), "phase", {"CPU time, ms": cpu / 1e6} if cpu > 0 else None)


_ON_STREAM = ("gap", "input_wait", "forward", "backward", "optimizer")


def add_stream_steps(
    book: TraceBook, track: Track, rows: Table, starts: Mapping[int, int], comm: Mapping[int, np.void]
) -> dict[int, tuple[int, int]]:
    """Adds what CUDA events measured of each step on the stream; returns the backward of each step, as placed.

    Events give lengths, no times. A step begins where the one before it ended, or with the step on the host, whichever is later.
    """
    placed: dict[int, tuple[int, int]] = {}
    end, before = 0, -1
    for row in rows[np.argsort(rows["step"], kind="stable")]:
        step = int(row["step"])
        if step not in starts or step <= before:
            continue
        lengths = {phase: max(0, int(row[f"{phase}_ns"])) for phase in _ON_STREAM}
        begin = max(end, starts[step] - lengths["gap"])
        end, before, at = begin + sum(lengths.values()), step, begin
        if end <= begin:
            continue
        book.slice(track, f"step {step} on the GPU", (begin, end), "gpu step", {"step": step})
        stamps = comm.get(step)
        for phase, length_ns in lengths.items():
            if phase == "backward":
                placed[step] = at, at + length_ns
                exposed = min(length_ns, exposed_ns(stamps)) if stamps is not None else 0
                parts: Sequence[Part] = _split(at, at + length_ns, exposed)
            else:
                parts = [(phase, at, at + length_ns)]
            for name, a, b in parts:
                if b > a:
                    book.slice(track, _TITLES[name], (a, b), "gpu phase")
            at += length_ns
    return placed
