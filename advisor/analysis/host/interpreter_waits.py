"""How long the training thread sleeps inside the model, and how much of a step it waits for the interpreter that another thread has."""

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
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

Values = dict[tuple[str, str], float]

_MODEL = ("forward", "backward", "clip", "optimizer")
_CLOCKED = ("forward", "backward", "optimizer")  # CPU clocks: that of the optimizer is clipping's, too
_CLOCKED_MIN = 3  # steps: two a second are clocked
_LOOKS_MIN = 30  # a share of a tenth then reaches from nothing to a fifth
_TELLING_EVENTS = 4  # of fewer, how much they differ says nothing


def asleep_values(
    recording: Recording, steady: Mapping[int, RankSteps], accounts: StepAttribution, missing: dict[str, str]
) -> Values:
    """Of ranks on a CPU: what forward, backward and optimizer take beyond computing, standing in line, and waiting for other ranks."""
    values: Values = {}
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
        waited = accounts.exposed.get(rank) if len(steady) > 1 else 0.0
        if facts.get("cuda"):
            missing["step.asleep_s"] = "on a GPU the host waits for the device: that is no loss by itself"
        elif waited is None:
            missing["step.asleep_s"] = "how long ranks wait for each other was not timed"
        elif not facts.get("run_delay", True) or clocked.sum() < _CLOCKED_MIN:
            missing["step.asleep_s"] = "no CPU clocks were read, or the kernel keeps no run-queue delay"
        else:
            c = steps.columns
            phases = np.sum([c[p] for p in _MODEL], axis=0) - np.sum([c[f"{p}_cpu"] for p in _CLOCKED], axis=0)
            if not steps.fed:  # the fetch may be in there
                phases = phases - c["forward"] + c["forward_cpu"]
            # a long step is clocked more often than a short one
            off_cpu_s = steps.per_step_s * float(phases[clocked].sum() / steps.length[clocked].sum())
            values["step.asleep_s", f"rank:{rank}"] = max(0.0, off_cpu_s - waited - steps.per_step("run_delay"))
    return values


@dataclass(frozen=True, slots=True)
class _Looks:
    looks: int
    waiting: int
    error: float  # standard error of the share


def interpreter_values(recording: Recording, steady: Mapping[int, RankSteps], missing: dict[str, str]) -> Values:
    """By rank: the share of the looks that found it waiting, their standard error, and the seconds of a step that this is."""
    values: Values = {}
    for rank, steps in steady.items():
        found = _looks([e for e in recording.events if e.kind == "interpreter" and e.rank == rank], steps)
        if found is None:
            continue
        scope, share = f"rank:{rank}", found.waiting / found.looks
        step_s = steps.per_step_s
        within_s = step_s - steps.per_step("evaluation") - steps.per_step("checkpoint")  # nobody looks there
        values["interpreter.looks", scope] = float(found.looks)
        values["interpreter.waiting_share", scope] = share
        values["interpreter.error", scope] = found.error
        values["interpreter.lost_s", scope] = share * max(0.0, within_s)
    if not values:
        gap = next((g for g in recording.gaps if g.metric in ("interpreter", "stacks")), None)
        missing["interpreter.waiting_share"] = gap.reason if gap else "nobody looked, or too seldom"
    return values


def holders(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[Holder, ...]:
    """Who had the interpreter when a rank waited for it: of each rank the thread and line seen most often, with how often."""
    found = []
    for rank, steps in steady.items():
        seen = [e for e in recording.events if e.kind == "holder" and e.rank == rank and _within(e, steps)]
        if seen:
            threads = Counter(str(e.data.get("thread") or "") for e in seen)
            thread, times = threads.most_common(1)[0]
            lines = Counter(_line(e) for e in seen if str(e.data.get("thread") or "") == thread)
            (file, line, function), _ = lines.most_common(1)[0]
            where = Where(file, line) if file else None
            found.append(Holder(rank, thread, function, where, times, len(seen)))
    return tuple(found)


def _line(event: Event) -> tuple[str, int, str]:
    """The user's line, else the innermost one: a library's thread."""
    frames = event.data.get("frames") or [{}]
    at = event.data.get("user") or {**frames[0], "file": ""}
    return str(at.get("file") or ""), int(at.get("line") or 0), str(at.get("function") or "")


def _looks(events: Sequence[Event], steps: RankSteps) -> _Looks | None:
    told = [(int(e.data["looks"]), int(e.data["waiting"])) for e in events if _within(e, steps)]
    looks, waiting = sum(n for n, _ in told), sum(n for _, n in told)
    if looks < _LOOKS_MIN:
        return None
    # by one more of each kind than was seen, or a few alike would be certain
    share = (waiting + 1) / (looks + 2)
    error = math.sqrt(share * (1 - share) / (looks + 2))
    # looks that follow each other closely find the same wait: how much whole groups of them differ says more
    shares = np.array([k / n for n, k in told if n])
    if shares.size >= _TELLING_EVENTS:
        error = max(error, float(shares.std(ddof=1) / math.sqrt(shares.size)))
    return _Looks(looks, waiting, error)


def _within(event: Event, steps: RankSteps) -> bool:
    return int(steps.start_ns[0]) < event.t_ns and int(event.data.get("since_ns", event.t_ns)) < int(steps.end_ns[-1])
