"""Made-up recordings: the steps of each rank as phase milliseconds, on a made-up clock. Not a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rn50_advisor.advisor.model.recording import Event, Meta, Process, Recording, Series, Table
from rn50_advisor.advisor.store.step_folding import COLUMNS, fold
from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    COMM_FIELDS,
    FLAG_COMM_SAMPLED,
    FLAG_EPOCH_START,
    FLAG_TAIL,
    GPU_STEP_FIELDS,
    SPAN_CODE,
    SPAN_FIELDS,
    STEP_FIELDS,
)

MS = 1_000_000
SECOND = 1_000_000_000
STARTED_NS = 1_000 * SECOND  # the job starts some time after boot
FIRST_STEP_NS = STARTED_NS + 2 * SECOND

Step = Mapping[str, float]  # phases in milliseconds; names without a unit in _COUNTS are counts
Plan = Sequence[Step]

_COUNTS = ("step", "samples", "micro_batches", "loader", "fetches", "fetch_blocks", "flags", "count")
_BEFORE_RELEASE = ("input_wait", "forward", "backward")
_AFTER_RELEASE = ("clip", "optimizer", "gap", "evaluation", "checkpoint")
# 100 ms: length of a plain step unless a test says otherwise
_PLAIN = {"input_wait": 10, "forward": 30, "backward": 50, "optimizer": 10, "samples": 8, "micro_batches": 1}


def step(**given: float) -> dict[str, float]:
    """One step of 100 ms: input_wait 10, forward 30, backward 50, optimizer 10; 8 samples."""
    return {**_PLAIN, **given}


def plan(steps: int = 30, **given: float) -> list[dict[str, float]]:
    """Equal steps."""
    return [step(**given) for _ in range(steps)]


def table(fields: Sequence[str], rows: Iterable[Mapping[str, int]]) -> Table:
    """Structured rows with exactly the layout's fields; missing values are 0."""
    rows = list(rows)
    dtype = np.dtype([(name, np.int64) for name in fields])
    unknown = {name for row in rows for name in row} - set(fields)
    assert not unknown, unknown
    return np.array([tuple(int(row.get(name, 0)) for name in fields) for row in rows], dtype=dtype)


def lockstep(
    plans: Mapping[int, Plan], *, wire_ms: float = 0.0, ddp: bool = True, stamp_every: int = 1
) -> tuple[dict[int, Table], dict[int, Table]]:
    """Steps and DDP stamps of ranks that leave each backward together, `wire_ms` after the last one arrived.

    Without `ddp` (or with one rank) no rank waits and there are no stamps.
    """
    clock = dict.fromkeys(plans, FIRST_STEP_NS)
    steps: dict[int, list[dict[str, int]]] = {rank: [] for rank in plans}
    comm: dict[int, list[dict[str, int]]] = {rank: [] for rank in plans}
    together = ddp and len(plans) > 1
    for number in range(max(map(len, plans.values()), default=0)):
        here = {rank: _in_ns(own[number]) for rank, own in plans.items() if number < len(own)}
        arrival = {
            rank: clock[rank] + sum(own.get(f"{p}_ns", 0) for p in _BEFORE_RELEASE) for rank, own in here.items()
        }
        release = max(arrival.values()) + round(wire_ms * MS)
        stamped = together and number % stamp_every == 0
        for rank, own in here.items():
            leaves = release if together else arrival[rank]
            end = leaves + sum(own.get(f"{p}_ns", 0) for p in _AFTER_RELEASE)
            waiting = leaves - arrival[rank]
            row = {"step": number, "count": 1, **own, "t_start_ns": clock[rank], "t_end_ns": end}
            row["backward_ns"] = own.get("backward_ns", 0) + waiting
            row["flags"] = row.get("flags", 0) | (FLAG_COMM_SAMPLED if stamped else 0)
            steps[rank].append(row)
            if stamped:
                ends = {"compute_end_ns": arrival[rank], "comm_end_ns": leaves}
                begin = arrival[rank] - own.get("backward_ns", 0)
                comm[rank].append(
                    {"step": number, "iteration": number, "backward_start_ns": begin, "comm_ns": waiting, **ends}
                )
            clock[rank] = end
    stamps = {rank: table((*COMM_FIELDS, "flags"), rows) for rank, rows in comm.items() if rows}
    return {rank: table((*STEP_FIELDS, "flags", "count"), rows) for rank, rows in steps.items()}, stamps


def _in_ns(own: Step) -> dict[str, int]:
    return {
        name if name in _COUNTS else f"{name}_ns": round(v if name in _COUNTS else v * MS) for name, v in own.items()
    }


def recording(
    plans: Mapping[int, Plan],
    *,
    wire_ms: float = 0.0,
    ddp: bool = True,
    stamp_every: int = 1,
    tail_ms: Mapping[str, float] | None = None,
    meta: Mapping[str, Any] | None = None,
    **more: Any,
) -> Recording:
    """A run that ended with exit code 0, one process per rank (pid 100 + rank). `more` replaces fields of the recording."""
    steps, comm = lockstep(plans, wire_ms=wire_ms, ddp=ddp, stamp_every=stamp_every)
    if tail_ms is not None:
        steps = {rank: with_tail(rows, **tail_ms) for rank, rows in steps.items()}
    ends = [int(rows["t_end_ns"][-1]) for rows in steps.values() if rows.size]
    last = max(ends, default=FIRST_STEP_NS)
    about = Meta(
        name="job",
        argv=("python", "train.py"),
        cwd="/job",
        host="node",
        started_unix_s=1_700_000_000.0,
        started_ns=STARTED_NS,
        last_ns=last,
        ended_ns=last,
        exit_code=0,
    )
    made = Recording(
        meta=replace(about, **(meta or {})),
        processes=tuple(rank_process(rank) for rank in plans),
        steps=steps,
        comm=comm,
    )
    return replace(made, **more)


def running(made: Recording) -> Recording:
    """The same recording while the run was still going on."""
    meta = replace(made.meta, ended_ns=None, exit_code=None)
    return replace(made, meta=meta, processes=tuple(replace(p, ended_ns=None) for p in made.processes))


def rank_process(rank: int, **given: Any) -> Process:
    base = Process(
        pid=100 + rank,
        role="rank",
        rank=rank,
        local_rank=rank,
        worker=None,
        parent_pid=1,
        command="python train.py",
        first_seen_ns=STARTED_NS + SECOND,
    )
    return replace(base, **given)


def with_tail(rows: Table, **ms: float) -> Table:
    """Adds a row for the rank's time after its last step, as written when it leaves."""
    start = int(rows["t_end_ns"][-1])
    own = _in_ns(ms)
    tail = {"step": int(rows["step"][-1]) + 1, "t_start_ns": start, "t_end_ns": start + sum(own.values()), **own}
    added = table((*STEP_FIELDS, "flags", "count"), [{**tail, "flags": FLAG_TAIL, "count": 1}])
    return np.concatenate([rows, added])


def folded(rows: Table, first: int, last: int, *, width_ns: int = SECOND, outlier_share: float = 0.0) -> Table:
    """Folds the rows from `first` to before `last` into windows, as retention does."""
    whole = np.stack([rows[name] for name in COLUMNS], axis=1).astype(np.int64)
    _, windows = fold(whole[first:last], width_ns, outlier_share, bridge=False)
    middle = table(COLUMNS, [dict(zip(COLUMNS, row, strict=True)) for row in windows.tolist()])
    return np.concatenate([rows[list(COLUMNS)][:first], middle, rows[list(COLUMNS)][last:]])


def gpu_steps(rows: Sequence[Mapping[str, float]]) -> Table:
    """One row a step, phases in milliseconds on the stream; a row may name its `step`."""
    return table(
        (*GPU_STEP_FIELDS, "flags"),
        [
            {"step": int(row.get("step", n)), **{f"{k}_ns": round(v * MS) for k, v in row.items() if k != "step"}}
            for n, row in enumerate(rows)
        ],
    )


def batches(rows: Iterable[Mapping[str, float]]) -> Table:
    """Batches made by workers: `start` (seconds after the first step), wall, cpu, delay, wait in ms; the rest are counts."""
    made = []
    for row in rows:
        start = FIRST_STEP_NS + round(row["start"] * SECOND)
        times = {"cpu_ns": row.get("cpu", 0), "run_delay_ns": row.get("delay", 0), "wait_ns": row.get("wait", 0)}
        times |= {"system_ns": row.get("system", 0), "sending_ns": row.get("sending", -1), "gc_ns": row.get("gc", 0)}
        counts = {n: int(row[n]) for n in ("worker", "loader", "blocks", "flags", "pid", "number") if n in row}
        made.append(
            {
                "evaluation": -1,
                "samples": int(row.get("samples", 8)),
                "t_start_ns": start,
                "t_end_ns": start + round(row["wall"] * MS),
                **{name: round(value * MS) for name, value in times.items()},
                **counts,
            }
        )
    return table((*BATCH_FIELDS, "flags", "pid"), made)


def spans(rows: Iterable[tuple[str, int, float, float]], counts: Sequence[int] = ()) -> Table:
    """Spans from (label, step, begin, end) in seconds after the first step; each counts as one unless `counts` says otherwise."""
    rows = list(rows)
    return table(
        (*SPAN_FIELDS, "flags"),
        [
            {
                "label": SPAN_CODE[label],
                "step": number,
                "t_start_ns": FIRST_STEP_NS + round(begin * SECOND),
                "t_end_ns": FIRST_STEP_NS + round(end * SECOND),
                "count": count,
            }
            for (label, number, begin, end), count in zip(rows, counts or [1] * len(rows), strict=True)
        ],
    )


def series(*readings: tuple[float, float]) -> Series:
    """A metric's series from (seconds after the first step, value)."""
    times = [FIRST_STEP_NS + round(t_s * SECOND) for t_s, _ in readings]
    return Series(np.array(times, np.int64), np.array([value for _, value in readings], np.float64))


def steady_counter(per_second: float, seconds: int = 10) -> Series:
    """A counter that grows evenly from the first step on."""
    return series(*((t, per_second * t) for t in range(seconds + 1)))


def stack(file: str, line: int, function: str, *callees: tuple[str, str, int], **given: Any) -> Event:
    """A stack sample in the gap of step 5: the user's line, and above it the functions it called (innermost first)."""
    own = {"function": function, "file": file, "line": line}
    frames = [{"function": f, "file": path, "line": at} for f, path, at in callees] + [own]
    data = {"phase": "gap", "step": 5, "frames": [*frames, *given.pop("callers", [])], "user": own, **given}
    return Event(FIRST_STEP_NS, "stack", 100, 0, data)


def stall(stalled_s: float, *ranks: Mapping[str, Any], number: str = "stall-1") -> Event:
    """A stall as reported after `stalled_s`; each rank is stalled for that long unless given otherwise."""
    now = FIRST_STEP_NS + round((10 + stalled_s) * SECOND)
    rows = [{"phase": "forward", "step": 7, "since_ns": now - round(stalled_s * SECOND), **row} for row in ranks]
    return Event(now, "stall", None, None, {"id": number, "stalled_s": stalled_s, "ranks": rows})


def stall_end(number: str = "stall-1") -> Event:
    return Event(FIRST_STEP_NS + 60 * SECOND, "stall_end", None, None, {"id": number, "stalled_s": 50.0})


def epoch_starts(steps: list[dict[str, float]], every: int, **given: float) -> list[dict[str, float]]:
    """The same steps, of which each `every`-th has the first fetch of an epoch and the values in `given`."""
    return [{**s, **given, "flags": FLAG_EPOCH_START} if n % every == 0 else s for n, s in enumerate(steps)]
