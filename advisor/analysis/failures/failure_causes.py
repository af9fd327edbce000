"""Finds the cause of a job's failure in its exceptions and last lines of output.

It looks for the first cause, not for the last line: errors of ranks whose peer is gone are consequences.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rn50_advisor.advisor.analysis.comm.flight_dumps import stuck_by_flight
from rn50_advisor.advisor.analysis.failures.known_failures import (
    GPU_MEMORY,
    KNOWN,
    LINE_MAX,
    PINNING,
    failure,
    is_consequence,
    recognised,
)
from rn50_advisor.advisor.model.analysis import Death, Failure
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import FlightDumps, PrintedLines

_EXCEPTION = re.compile(
    r"^(?:\[\w+\]:\s*)?((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Warning)): ?(.*)"
)
_RANK = re.compile(r"^\s*\[(?:rank|default)(\d+)\]:|\[[Rr]ank (\d+)\]|\bRank (\d+)\b|\brank (\d+)\b")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_ROOT_RANK = re.compile(r"^\s*rank\s*: (\d+) \(")
_ROOT_CAUSE_LINES = 6  # lines
# multiprocessing.spawn raises this in the parent
SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error")
_REASON_LINES = 5  # lines: NCCL names the call first, and CUDA's error below
_TRACEBACK_LINES = 30  # lines, of a thread of the loader
_LAST_LINES = 20  # of the output: a fatal error may be caught and printed there before the process ends
_ENQUEUED = re.compile(r"\bRank (\d+)\].*last enqueued (?:NCCL )?work: (-?\d+)")


def mark_followers(deaths: Iterable[Death]) -> tuple[Death, ...]:
    """Marks ranks whose exception says that a peer was already gone as followers, whenever they ended."""
    return tuple(replace(d, follows=bool(d.exception) and is_consequence(d.exception)) for d in deaths)


def with_leaver(recording: Recording, deaths: tuple[Death, ...]) -> tuple[Death, ...]:
    """Puts a rank that exited with code 0 first if all ranks that died only followed: it left while the others still needed it."""
    ranks = [death for death in deaths if death.role == "rank"]
    if not ranks or not all(death.follows for death in ranks):
        return deaths
    start = recording.meta.started_ns
    left = [p for p in recording.processes if p.role == "rank" and p.exit_code == 0 and p.ended_ns is not None]
    leaver = min(left, key=lambda p: p.ended_ns or 0, default=None)
    if leaver is None or leaver.ended_ns is None or leaver.rank is None:
        return deaths
    t_s = (leaver.ended_ns - start) / 1e9
    if t_s >= ranks[0].t_s:
        return deaths
    _, step, _ = recording.positions.get(leaver.rank, ("", 0, 0))
    gone = Death(leaver.rank, leaver.pid, t_s, 0, None, False, "ended", step, first=True)
    return (gone, *(replace(death, first=False) for death in deaths))


def failure_of(recording: Recording, deaths: Sequence[Death]) -> Failure | None:
    """The cause of a failed job, from exceptions in processes and from kept output; None if neither shows it."""
    raised = [death for death in deaths if death.exception and not death.follows and death.role == "rank"]
    ranks = [death for death in deaths if death.role == "rank" and not death.follows]
    for death in raised:
        known = recognised(death.exception)
        if known is not None:
            return replace(known, rank=death.rank)
    if raised and raised[0] is ranks[0]:
        first = raised[0]
        return Failure(
            "exception", first.exception.partition("\n")[0][:LINE_MAX], "", first.rank, first.exception[:LINE_MAX]
        )
    found = _before_training(recording) or _in_output(_output(recording), ranks)
    aborted = any(death.role == "rank" and death.signal == signal.SIGABRT for death in deaths)
    return _behind_in_flight(recording, found, aborted=aborted)


def _behind_in_flight(recording: Recording, found: Failure | None, *, aborted: bool) -> Failure | None:
    """Adds the rank that is behind, from the flight recorder's dumps, to a watchdog abort whose lines name no rank or were not kept."""
    if found is None and aborted:
        gave_up = next(failure(known, "", "") for known in KNOWN if known.kind == "watchdog")
    elif found is not None and found.rank is None and found.kind.startswith("watchdog"):
        gave_up = found
    else:
        return found
    dumps = {
        int(rank): [dump]
        for event in events_of(recording.events, FlightDumps)
        for rank, dump in event.data.get("ranks", {}).items()
        if rank.isdecimal()
    }
    stuck = stuck_by_flight(dumps)
    if stuck is None:
        return found
    size = f" of {stuck.elements} elements" if stuck.elements else ""
    which = (
        stuck.differing
        or f"{stuck.kind}{size}, number {stuck.number}: rank {', '.join(map(str, stuck.missing))} not in it"
    )
    line = "; ".join(filter(None, (gave_up.line, f"{stuck.source}: {which}")))[:LINE_MAX]
    return replace(gave_up, rank=stuck.missing[0] if len(stuck.missing) == 1 else None, line=line)


def _before_training(recording: Recording) -> Failure | None:
    """The exception of a process that ended before its first step: the first one of a known kind, else the first."""
    trained = {process.pid for process in recording.processes if process.role != "other"}
    ended = {process.pid: process.ended_ns or 0 for process in recording.processes}
    texts = []
    for pid, facts in sorted(recording.facts.items(), key=lambda item: ended.get(item[0], 0)):
        error = facts.get("exception")
        if pid not in trained and error is not None:
            text = f"{error.get('type')}: {error.get('message')}"
            spawned = SPAWNED.search(text)
            rank = int(spawned[1]) if spawned else facts.get("rank")
            if spawned:  # the child's error is at the end of its traceback
                text = text.rstrip().rpartition("\n")[2]
            if not is_consequence(text):
                texts.append((text, rank))
    for text, rank in texts:
        known = recognised(text)
        if known is not None:
            return replace(known, rank=_number(rank))
    if texts:
        return Failure(
            "exception", texts[0][0].partition("\n")[0][:LINE_MAX], "", _number(texts[0][1]), texts[0][0][:LINE_MAX]
        )
    return None


def _output(recording: Recording) -> list[str]:
    """The kept output of a job that ran behind the screen: its error lines and its last lines."""
    return [line for event in events_of(recording.events, PrintedLines) for line in event.data.get("lines", ())]


def _in_output(lines: Sequence[str], deaths: Sequence[Death]) -> Failure | None:
    """The first known failure in these lines; else the first exception that is no consequence. `deaths` are those of non-followers."""
    for number in range(len(lines)):
        known = _with_reason(lines, number)
        if known is not None:
            found = replace(known, rank=_first_rank(lines, number, known.kind))
            if known.kind != GPU_MEMORY or _ended_by_it(lines, number, found.rank, deaths):
                return found
    for number, line in enumerate(lines):
        raised = _EXCEPTION.match(line)
        if raised and not is_consequence(line) and recognised(line) is None:
            title = f"{raised[1]}: {raised[2]}" if raised[2] else raised[1]
            return Failure("exception", title[:LINE_MAX], "", _first_rank(lines, number, ""), line[:LINE_MAX])
    return None


def _with_reason(lines: Sequence[str], number: int) -> Failure | None:
    """The failure that a line reports, refined by nearby lines that give its reason."""
    known = recognised(lines[number])
    if known is not None and known.kind == "NCCL":
        near = (recognised(line) for line in lines[number + 1 : number + _REASON_LINES])
        return next((reason for reason in near if reason is not None and reason.kind == GPU_MEMORY), known)
    if known is not None and known.kind == GPU_MEMORY:
        before = lines[max(0, number - _TRACEBACK_LINES) : number]
        pinning = next((line for line in before if PINNING in line), "")
        return (recognised(f"{pinning}\n{lines[number]}") if pinning else None) or known
    return known


def _ended_by_it(lines: Sequence[str], number: int, rank: int | None, deaths: Sequence[Death]) -> bool:
    """True if a GPU out-of-memory error ended the job. Many jobs catch this exception and continue with a smaller batch.

    A process that died of a signal other than SIGABRT did not die of this error. The error ended the job if it is among the last lines, or
    if it was raised (`Name: text`) and all later exceptions are consequences or the same error.
    """
    possible = [death for death in deaths if rank in (None, death.rank)]
    if possible and all(death.signal and death.signal != signal.SIGABRT for death in possible):
        return False
    if number >= len(lines) - _LAST_LINES:
        return True
    later = (line for line in lines[number + 1 :] if _EXCEPTION.match(line))
    return bool(_EXCEPTION.match(lines[number])) and all(
        is_consequence(line) or ((again := recognised(line)) is not None and again.kind == GPU_MEMORY) for line in later
    )


def _first_rank(lines: Sequence[str], number: int, kind: str) -> int | None:
    """The rank that failed first: for a watchdog the one behind, else the one that wrote the line, else the one in torchrun's summary."""
    if kind == "watchdog":  # every rank that gives up is waiting: being first to do so says nothing about the cause
        return _behind(lines)
    wrote = _rank_in(lines[number])
    if wrote is not None:
        return wrote
    for place, line in enumerate(lines):
        if _ROOT.search(line):
            found = (_ROOT_RANK.search(near) for near in lines[place : place + _ROOT_CAUSE_LINES])
            return next((int(rank[1]) for rank in found if rank), None)
    return None


def _behind(lines: Sequence[str]) -> int | None:
    """The rank that had enqueued fewer collectives than all others when the watchdogs gave up; None if there is no single one."""
    enqueued = {int(found[1]): int(found[2]) for line in lines if (found := _ENQUEUED.search(line))}
    least = min(enqueued.values(), default=0)
    late = [rank for rank, work in enqueued.items() if work == least]
    return late[0] if len(late) == 1 and len(enqueued) > 1 else None


def _rank_in(line: str) -> int | None:
    found = _RANK.search(line)
    return int(next(group for group in found.groups() if group)) if found else None


def _number(rank: object) -> int | None:
    return rank if isinstance(rank, int) and rank >= 0 else None
