"""Joins the traces of a job's ranks into the recording of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import cast

import numpy as np

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, Meta, Process, Recording, Table, happened
from rn50_advisor.advisor.traces.traced_rank import TracedRank
from rn50_advisor.probes.documents.event_documents import StackSample, TracedWindow

_TIMES = {
    "steps": ("t_start_ns", "t_end_ns"),
    "comm": ("backward_start_ns", "compute_end_ns", "comm_start_ns", "comm_end_ns"),
}
# Ranks leave a collective within this time of each other; a larger difference comes from their clocks.
_CLOCKS_APART_NS = 1_000_000


def recording_of(ranks: Sequence[TracedRank], name: str, left_out: Sequence[str] = ()) -> Recording:
    """The recording of a run whose ranks these are, in order. `name` is what the user called it; `left_out`: files that were not used."""
    ranks = _on_one_clock(ranks)
    origin = min(one.begin_ns for one in ranks)
    last_ns = max(one.end_ns for one in ranks) - origin
    events: list[AnyEvent] = [
        happened(
            TracedWindow,
            cast(TracedWindow, asdict(one.window)),
            t_ns=one.end_ns - origin,
            pid=_pid(one),
            rank=one.rank,
        )
        for one in ranks
        if one.window is not None
    ]
    events += [
        happened(StackSample, sample, t_ns=t_ns - origin, pid=_pid(one), rank=one.rank)
        for one in ranks
        for t_ns, sample in one.samples
    ]
    return Recording(
        meta=Meta(
            name=name,
            argv=(),
            cwd="",
            host=ranks[0].host,
            started_unix_s=origin / 1e9,
            started_ns=0,
            last_ns=last_ns,
            ended_ns=last_ns,
            traced=True,
        ),
        processes=tuple(
            Process(_pid(one), "rank", one.rank, None, None, 0, "", one.begin_ns - origin) for one in ranks
        ),
        facts={
            _pid(one): {
                **one.facts,
                "pid": _pid(one),
                "rank": one.rank,
                "world_size": one.world_size,
                "group_size": one.world_size,
            }
            for one in ranks
        },
        steps={one.rank: _since(one.steps, "steps", origin) for one in ranks if one.steps is not None},
        gpu_steps={one.rank: one.gpu_steps for one in ranks if one.gpu_steps is not None},
        comm={one.rank: _since(one.comm, "comm", origin) for one in ranks if one.comm is not None},
        events=tuple(sorted(events, key=lambda event: event.t_ns)),
        gaps=tuple(_gaps(ranks, left_out)),
    )


def _pid(one: TracedRank) -> int:
    """Ranks of several hosts may have the same process id, so that the trace's own is not used."""
    return 1 + one.rank


def _since(table: Table, kind: str, origin: int) -> Table:
    found: Table = table.copy()
    for column in _TIMES[kind]:
        found[column] -= origin
    return found


def _on_one_clock(ranks: Sequence[TracedRank]) -> list[TracedRank]:
    """The ranks with times on the first one's clock, and steps numbered like its steps."""
    first, *others = ranks
    return [first, *(_numbered_like(first, _shifted(one, -_ahead_ns(first, one))) for one in others)]


def _ahead_ns(first: TracedRank, one: TracedRank) -> int:
    """By how much a rank's clock is ahead of the first one's: ranks leave a collective together. 0 if their collectives do not match."""
    if not first.collectives.size or first.collectives.size != one.collectives.size:
        return 0
    ahead = int(np.median(one.collectives - first.collectives))
    return ahead if abs(ahead) > _CLOCKS_APART_NS else 0


def _shifted(one: TracedRank, ns: int) -> TracedRank:
    if not ns:
        return one
    return replace(
        one,
        begin_ns=one.begin_ns + ns,
        end_ns=one.end_ns + ns,
        samples=tuple((t_ns + ns, sample) for t_ns, sample in one.samples),
        steps=None if one.steps is None else _since(one.steps, "steps", -ns),
        comm=None if one.comm is None else _since(one.comm, "comm", -ns),
    )


def _numbered_like(first: TracedRank, one: TracedRank) -> TracedRank:
    """Without ProfilerStep#, a step has the number of the first rank's step that begins nearest to it."""
    if one.numbered or first.steps is None or one.steps is None:
        return one
    nearest = int(np.abs(first.steps["t_start_ns"] - one.steps["t_start_ns"][0]).argmin())
    more = int(first.steps["step"][nearest] - one.steps["step"][0])
    return replace(
        one,
        steps=_renumbered(one.steps, more),
        gpu_steps=_renumbered(one.gpu_steps, more),
        comm=_renumbered(one.comm, more),
    )


def _renumbered(table: Table | None, more: int) -> Table | None:
    if table is None:
        return None
    found: Table = table.copy()
    found["step"] += more
    return found


def _gaps(ranks: Sequence[TracedRank], left_out: Sequence[str]) -> Iterator[ProbeGap]:
    yield ProbeGap(
        "machine and job",
        "job",
        "a profiler's trace shows neither cores, memory and storage, nor the GPU's clocks, nor the workers' batches, nor what the job did "
        "around the traced steps",
        "record a run: rn50-advisor run -- COMMAND",
    )
    for one in ranks:
        if one.blind:
            yield ProbeGap(
                "kernels",
                f"rank:{one.rank}",
                "the job works on a device whose activity is not in the trace: only the host's times are known",
                "profile with ProfilerActivity.CUDA; CUPTI must be able to start",
            )
    if left_out:
        shown = ", ".join(left_out[:5]) + (" …" if len(left_out) > 5 else "")
        yield ProbeGap(
            "traces", "job", f"earlier traces of the same ranks were left out: {shown}", "report them one by one"
        )
