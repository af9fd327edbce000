"""Measures how long the training thread sleeps inside the model, and waits for the interpreter lock while another thread holds it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    INTERPRETER_ERROR,
    INTERPRETER_LOOKS,
    INTERPRETER_LOST_S,
    INTERPRETER_WAITING_SHARE,
    STEP_ASLEEP_S,
)
from rn50_advisor.advisor.model.recording import Event, Recording, events_of
from rn50_advisor.probes.documents.event_documents import InterpreterHolder, InterpreterWaitSamples, KnownStack
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

_MODEL = ("forward", "backward", "clip", "optimizer")
_CLOCKED = ("forward", "backward", "optimizer")  # phases with a CPU clock; the optimizer's includes clipping
_CLOCKED_MIN = 3  # steps; two a second are clocked
_SAMPLES_MIN = 30  # with so few, a share of 0.1 may be anything from 0 to 0.2
_EVENTS_MIN = 4  # with fewer, their spread says nothing


def asleep_values(recording: Recording, steady: Mapping[int, RankSteps], accounts: StepAttribution) -> Measured:
    """For ranks on a CPU: time in forward, backward and optimizer beyond compute, waiting for a core, and waiting for other ranks."""
    values = Measured()
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
        waited = accounts.exposed.get(rank) if len(steady) > 1 else 0.0
        if facts.get("cuda"):
            values.missing[STEP_ASLEEP_S, rank] = (
                "on a GPU job the host waits for the device: that is no loss by itself"
            )
        elif waited is None:
            values.missing[STEP_ASLEEP_S, rank] = "the time that ranks wait for each other was not measured"
        elif not facts.get("run_delay", True) or clocked.sum() < _CLOCKED_MIN:
            values.missing[STEP_ASLEEP_S, rank] = "no CPU clocks were read, or the kernel keeps no run-queue delay"
        else:
            c = steps.columns
            phases = np.sum([c[p] for p in _MODEL], axis=0) - np.sum([c[f"{p}_cpu"] for p in _CLOCKED], axis=0)
            if not steps.fed:  # the forward may include the fetch
                phases = phases - c["forward"] + c["forward_cpu"]
            # a long step is clocked more often than a short one
            off_cpu_s = steps.per_step_s * float(phases[clocked].sum() / steps.length[clocked].sum())
            values[STEP_ASLEEP_S, rank] = max(0.0, off_cpu_s - waited - steps.per_step("run_delay"))
    return values


@dataclass(frozen=True, slots=True)
class _Samples:
    samples: int
    waiting: int
    error: float  # standard error of the share


def interpreter_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """For each rank: share of samples in which it waited for the interpreter lock, its standard error, and the seconds per step lost."""
    values = Measured()
    for rank, steps in steady.items():
        found = _samples([e for e in events_of(recording.events, InterpreterWaitSamples) if e.rank == rank], steps)
        if found is None:
            continue
        share = found.waiting / found.samples
        step_s = steps.per_step_s
        within_s = step_s - steps.per_step("evaluation") - steps.per_step("checkpoint")  # not sampled in these
        values[INTERPRETER_LOOKS, rank] = float(found.samples)
        values[INTERPRETER_WAITING_SHARE, rank] = share
        values[INTERPRETER_ERROR, rank] = found.error
        values[INTERPRETER_LOST_S, rank] = share * max(0.0, within_s)
    if not values:
        gap = next((g for g in recording.gaps if g.metric in ("interpreter", "stacks")), None)
        values.missing[INTERPRETER_WAITING_SHARE, JOB] = gap.reason if gap else "too few samples were taken"
    return values


def holders(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[Holder, ...]:
    """For each rank, the thread and line that most often held the interpreter lock while the rank waited for it, with the count."""
    found = []
    for rank, steps in steady.items():
        seen = [
            e
            for e in events_of(recording.events, InterpreterHolder)
            if e.rank == rank and _within(e.t_ns, e.t_ns, steps)
        ]
        if seen:
            threads = Counter(e.data.get("thread") or "" for e in seen)
            thread, times = threads.most_common(1)[0]
            lines = Counter(_line(e.data) for e in seen if (e.data.get("thread") or "") == thread)
            (file, line, function), _ = lines.most_common(1)[0]
            where = Where(file, line) if file else None
            found.append(Holder(rank, thread, function, where, times, len(seen)))
    return tuple(found)


def _line(stack: KnownStack) -> tuple[str, int, str]:
    """The user's line; for a library's thread the innermost line."""
    user, frames = stack.get("user"), stack["frames"]
    if user is not None:
        return user["file"], user["line"], user["function"]
    return ("", frames[0]["line"], frames[0]["function"]) if frames else ("", 0, "")


def _samples(events: Sequence[Event[InterpreterWaitSamples]], steps: RankSteps) -> _Samples | None:
    inside = [e.data for e in events if _within(e.data.get("since_ns", e.t_ns), e.t_ns, steps)]
    counts = [(data["looks"], data["waiting"]) for data in inside]
    samples, waiting = sum(n for n, _ in counts), sum(n for _, n in counts)
    if samples < _SAMPLES_MIN:
        return None
    # one more sample of each kind: otherwise a few equal samples would have no error
    share = (waiting + 1) / (samples + 2)
    error = math.sqrt(share * (1 - share) / (samples + 2))
    # samples close in time find the same wait, so the spread between groups of them says more
    shares = np.array([k / n for n, k in counts if n])
    if shares.size >= _EVENTS_MIN:
        error = max(error, float(shares.std(ddof=1) / math.sqrt(shares.size)))
    return _Samples(samples, waiting, error)


def _within(since_ns: int, until_ns: int, steps: RankSteps) -> bool:
    return int(steps.start_ns[0]) < until_ns and since_ns < int(steps.end_ns[-1])
