"""Explains stalls of a job: the rank that holds up the others, what it does meanwhile, and whether the job went on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.analysis.comm.collective_calls import group_size
from rn50_advisor.advisor.analysis.comm.flight_dumps import stuck_by_calls, stuck_by_flight
from rn50_advisor.advisor.analysis.gpu.gpu_ranks import gpus_of
from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.stack_profiles import called
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, warm_up_rows
from rn50_advisor.advisor.model.analysis import Stall, StalledRank, StuckCollective
from rn50_advisor.advisor.model.recording import Event, Recording, Series, events_of
from rn50_advisor.advisor.model.statistics import weighted_quantile
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.event_documents import CallUnderWay, StalledRankRow, StallEnd, StallSeen
from rn50_advisor.probes.host.stacks.process_stacks import is_ours
from rn50_advisor.probes.rank.layout import FLAG_TAIL

# A rank in one of these functions is in a collective and waits for others.
_COLLECTIVE_FUNCTIONS = frozenset(
    (
        "all_reduce", "allreduce", "barrier", "monitored_barrier", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter",
        "reduce_scatter_tensor", "reduce", "all_to_all", "gather", "scatter", "recv", "send", "all_gather_object", "broadcast_object_list",
        "_all_gather_base", "wait", "synchronize", "init_process_group", "destroy_process_group", "_store_based_barrier",
    )
)  # fmt: skip
_ENOUGH_STEPS = 10  # with fewer, warm-up and usual steps cannot be separated
# A rank that has moved within this time is still running: the agent reports no stall earlier.
_MOVED_S = 15.0
_INSPECTIONS_APART_NS = 2_000_000_000
_STOPPED = "T"  # kernel state of a training thread that a signal has stopped; a debugger's stop has another state
_BUSY_SHARE = 0.05  # of a core: upper limit over all threads of a process that only waits
# Share of a core: far more than polling threads use, and as much as a thread gets where four threads share two cores.
_WORKING_SHARE = 0.5
_FRAMES_SHOWN = 8  # innermost frames of a stack: enough to reach the line that called the library
_GPU_RESTS_PCT = 10.0  # a kernel that waits for another rank shows as 100 %, and its own rank may spin until it ends
# Kernel functions of threads that wait for a timer, a signal or a lock, not for a disk, a socket, a pipe or a child process.
_IDLE = re.compile(r"nanosleep|nsleep|sys_pause|futex|sigsuspend|sigtimedwait|locks_")

_COMPARED_FIELDS: tuple[Literal["state", "user", "frames"], ...] = ("state", "user", "frames")
_PLACE: tuple[Literal["pid", "phase", "step", "since_ns"], ...] = ("pid", "phase", "step", "since_ns")
Inspection = tuple[Event[StallSeen], StalledRankRow]  # one observation of a stall, and its row for one rank


@dataclass(frozen=True, slots=True)
class SlowestSteps:
    """99th percentile of the slowest rank's steps in seconds: usual steps without evaluation and checkpoints, and whole steps."""

    usual_s: float = 0.0
    whole_s: float = 0.0


def slowest_steps(everything: Mapping[int, RankSteps]) -> SlowestSteps:
    """The slowest steps so far. `usual_s` excludes the warm-up: steps that compile would delay the detection of a hang tenfold."""
    usual, whole = [0.0], [0.0]
    for steps in everything.values():
        lengths, counts = steps.length / steps.count, steps.count
        whole.append(weighted_quantile(lengths, counts, 0.99))
        if counts.sum() >= _ENOUGH_STEPS:
            aside, first = (steps.columns["evaluation"] + steps.columns["checkpoint"]) / counts, warm_up_rows(steps)
            lengths, counts = (lengths - aside)[first:], counts[first:]
        usual.append(weighted_quantile(lengths, counts, 0.99) if lengths.size else 0.0)
    return SlowestSteps(max(usual), max(whole))


def stalls(recording: Recording, typical_step_s: float, slowest: SlowestSteps) -> tuple[Stall, ...]:
    """Each stall as last observed. `culprit` is the rank outside any collective while others wait in one."""
    inspections: dict[int | str | None, list[Event[StallSeen]]] = {}
    ends = {event.data.get("id"): event.t_ns for event in events_of(recording.events, StallEnd)}
    for event in events_of(recording.events, StallSeen):
        inspections.setdefault(event.data.get("id"), []).append(event)
    return tuple(
        _stall(recording, seen, ends.get(number), typical_step_s, slowest) for number, seen in inspections.items()
    )


def _stall(
    recording: Recording,
    inspections: list[Event[StallSeen]],
    ended_ns: int | None,
    typical_step_s: float,
    slowest: SlowestSteps,
) -> Stall:
    last = inspections[-1]
    until_ns = last.t_ns
    if ended_ns is None and recording.meta.ended_ns is None and _still_there(recording, last):
        until_ns = max(until_ns, recording.meta.last_ns)
    stuck = _stuck(last)
    group = group_size(recording, [row["rank"] for row in last.data.get("ranks", ())])
    ranks = _stalled_ranks(recording, inspections, until_ns, frozenset(stuck.missing if stuck else ()), group)
    stalled_s = last.data.get("stalled_s", 0.0) + (until_ns - last.t_ns) / 1e9
    evaluating = any(rank.phase == "evaluation" for rank in ranks)
    p99_s = slowest.whole_s if evaluating else slowest.usual_s
    moved_s = max(min(stalled_s / 2, _MOVED_S), p99_s)
    return Stall(
        t_s=(until_ns - recording.meta.started_ns) / 1e9,
        stalled_s=stalled_s,
        ended=ended_ns is not None,
        typical_step_s=typical_step_s,
        p99_step_s=p99_s,
        ranks=ranks,
        group_size=group,
        collective=stuck,
        others_moved=any(rank.since_s < moved_s for rank in ranks),
        resumed=ended_ns is not None and _went_on(recording, ended_ns),
    )


def _still_there(recording: Recording, inspection: Event[StallSeen]) -> bool:
    """True while the ranks' positions equal those of the last inspection. Positions are read every second, inspections are further apart.

    A rank that has not begun to train has no position.
    """
    rows = inspection.data.get("ranks", ())
    places = {row["rank"]: (row.get("phase"), row.get("step"), row.get("since_ns")) for row in rows}
    known = places.keys() & recording.positions.keys()
    starting = (places[rank][0] == "start" for rank in places.keys() - known)
    return bool(known) and all(recording.positions[rank] == places[rank] for rank in known) and all(starting)


def _went_on(recording: Recording, ended_ns: int) -> bool:
    """True if any rank finished a step afterwards."""
    for table in recording.steps.values():
        real = table[(table["flags"] & FLAG_TAIL) == 0]
        if real.size and int(real["t_end_ns"].max()) > ended_ns:
            return True
    return False


def _stuck(event: Event[StallSeen]) -> StuckCollective | None:
    """The collective that ranks are stuck in. The flight recorder takes precedence: it also sees DDP's own calls."""
    rows = event.data.get("ranks", [])
    dumps = {row["rank"]: row["flight"] for row in rows if row.get("flight")}
    return stuck_by_flight(dumps) or stuck_by_calls(rows)


def _stalled_ranks(
    recording: Recording, inspections: list[Event[StallSeen]], until_ns: int, missing: frozenset[int], group: int
) -> tuple[StalledRank, ...]:
    """The state of each rank in a stall.

    `missing`: ranks that have not reached the collective that others wait in, as far as calls were counted. `group`: number of ranks in the
    exchange; some may have ended or be on other nodes.
    """
    event = inspections[-1]
    rank_rows = event.data.get("ranks", [])
    before = {
        row["rank"]: (inspection, row) for inspection in inspections[-2:-1] for row in inspection.data.get("ranks", ())
    }
    several = max(len(rank_rows), group) > 1
    used = _use_of_gpus(recording)
    waiting = {row["rank"]: _waits(row, several=several, missing=missing) for row in rank_rows}
    culprits = _culprits(rank_rows, waiting, missing)
    rows = []
    for row in rank_rows:
        rank = row["rank"]
        frames = row.get("frames", [])
        user = row.get("user") or (frames[0] if frames else None)
        rows.append(
            StalledRank(
                rank=rank,
                phase=row.get("phase", ""),
                step=row.get("step", 0),
                since_s=max(0.0, (until_ns - row.get("since_ns", event.t_ns)) / 1e9),
                file=user["file"] if user else "",
                line=user["line"] if user else 0,
                function=user["function"] if user else "",
                leaf=place(frames[0]) if frames else "",
                culprit=rank in culprits,
                waiting_in_collective=waiting[rank],
                halted=_halted(before.get(rank), (event, row)),
                compiling=bool(row.get("compiles")),
                working=not waiting[rank] and _works(used.get(rank), before.get(rank), (event, row)),
                frames=_shown(frames) if rank in culprits else (),
            )
        )
    return tuple(rows)


def _shown(frames: list[StackFrame]) -> tuple[str, ...]:
    """The innermost frames as text, innermost first, without the recorder's own."""
    return tuple(place(frame) for frame in frames if not is_ours(frame["file"]))[:_FRAMES_SHOWN]


def _waits(row: StalledRankRow, *, several: bool, missing: frozenset[int]) -> bool:
    if row.get("state") == _STOPPED:
        return False
    # DDP waits for its all-reduce inside the backward pass, where no Python frame shows it
    inside = row.get("collective", CallUnderWay()).get("inside_s") is not None
    in_backward = row.get("phase") == "backward" and several and row["rank"] not in missing
    return inside or in_backward or any(_in_collective(frame) for frame in row.get("frames", [])[:6])


def _culprits(rank_rows: list[StalledRankRow], waiting: Mapping[int, bool], missing: frozenset[int]) -> frozenset[int]:
    stopped = frozenset(row["rank"] for row in rank_rows if row.get("state") == _STOPPED)
    if stopped:
        return stopped  # the others wait for a stopped rank, wherever it was stopped
    outside = [rank for rank, waits in waiting.items() if not waits]
    if outside and len(outside) == len(rank_rows) > 1:
        # no rank visibly waits in a collective: the ranks furthest behind hold up the others
        behind = min(row.get("step", 0) for row in rank_rows)
        outside = [row["rank"] for row in rank_rows if row.get("step", 0) == behind]
    # a rank may hang inside its backward pass, where it seems to wait, or wait in a different collective than the rest
    return frozenset([rank for rank in outside if rank in missing] or outside or missing)


def _halted(earlier: Inspection | None, later: Inspection) -> Literal["", "asleep", "stopped"]:
    """State of a rank ("asleep" or "stopped") that neither moved nor used its CPUs between two inspections; otherwise empty."""
    cores = _cores_used(earlier, later)
    if earlier is None or cores is None or cores > _BUSY_SHARE:
        return ""
    before, now = earlier[1], later[1]
    if any(before.get(key) != now.get(key) for key in _COMPARED_FIELDS):
        return ""
    if now.get("state") == _STOPPED:
        return "stopped"
    return "asleep" if _sleeps(now) else ""


def _use_of_gpus(recording: Recording) -> dict[int, list[Series]]:
    """GPU utilisation series of each rank that trains on GPUs, as far as recorded."""
    ranks = process_by_rank(recording.processes).items()
    found: dict[int, list[Series]] = {rank: [] for rank, p in ranks if recording.facts.get(p.pid, {}).get("cuda")}
    for gpu in gpus_of(recording) if found else ():
        series = recording.samples.get(("gpu.util_pct", f"gpu:{gpu.index}"))
        for rank in gpu.ranks:
            if rank in found and series is not None:
                found[rank].append(series)
    return found


def _works(used: list[Series] | None, earlier: Inspection | None, later: Inspection) -> bool:
    """True if the rank computed on the CPU between two inspections and did not just spin until its GPU is done.

    `used`: utilisation of its GPUs; None if it trains on none.
    """
    cores = _cores_used(earlier, later)
    if earlier is None or cores is None or cores < _WORKING_SHARE or _sleeps(later[1]):
        return False
    if used is None:
        return True
    read = [s.value[(s.t_ns >= _seen_ns(earlier)) & (s.t_ns <= _seen_ns(later))] for s in used]
    return bool(read) and all(values.size and values.max() < _GPU_RESTS_PCT for values in read)


def _cores_used(earlier: Inspection | None, later: Inspection) -> float | None:
    """Cores that all threads used between two inspections at the same place; None if unknown."""
    if earlier is None:
        return None
    before, now = earlier[1], later[1]
    apart_ns = _seen_ns(later) - _seen_ns(earlier)
    moved = any(before.get(key) != now.get(key) for key in _PLACE)
    used_s, used_then_s = now.get("cpu_s"), before.get("cpu_s")
    if moved or apart_ns < _INSPECTIONS_APART_NS or used_s is None or used_then_s is None:
        return None
    return (used_s - used_then_s) / (apart_ns / 1e9)


def _seen_ns(inspection: Inspection) -> int:
    """Time at which a rank was inspected. The agents of different nodes inspect at different times."""
    event, row = inspection
    return row.get("seen_ns", event.t_ns)


def _sleeps(row: StalledRankRow) -> bool:
    idle = row.get("state") == "S" and _IDLE.search(row.get("wchan", ""))
    return bool(idle) and _in_users_line(row)


def _in_users_line(row: StalledRankRow) -> bool:
    """True if the user's own line waits, not a library below it: a library may be downloading, writing or compiling."""
    user, frames = row.get("user"), row.get("frames")
    if not user or not frames:
        return False
    at = frames[0]
    return (at["file"], at["line"], at["function"]) == (user["file"], user["line"], user["function"])


def _in_collective(frame: StackFrame) -> bool:
    """True if the frame is one of torch's collectives. Other libraries also have functions called `wait` or `send`."""
    return "/torch/" in frame["file"] and called(frame) in _COLLECTIVE_FUNCTIONS
