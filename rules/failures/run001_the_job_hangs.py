"""Hang.

What it does: finds jobs in which no rank has finished a step or moved to another phase for far longer than any step
took, and names the rank that blocks the others. While the job runs, a rank that sleeps in a line of the script, or was
stopped by a signal, is already reported after half that time, as a rank that has not moved. A rank that computes while
all others wait for it is reported after the full time.

Fires when: nothing moves for max(30 s, 10 × the slowest usual steps), or for 15 s if one rank was stopped or sleeps in its own line
while all others wait; names rank, function, line.

Why it matters: a hung job occupies every accelerator it holds until a user notices, or until a watchdog kills it half
an hour later.

Evidence: how long nothing has moved, against the longest usual step; for each rank its phase, step and line, and the
culprit's Python stack. The culprit is the rank that is not waiting in a collective: the others wait for it. Which
collective that is, its number, and which ranks have reached it come from the recorder's own count of calls from Python
and from torch's flight recorder. If a watchdog ended the job, its message, and the rank that it shows to be behind.

Fix: look at the culprit's line. Usual causes are a rank that left the loop early, an uneven number of batches, a lock,
a read that never returns, or a collective that not all ranks call.

False alarms: long evaluations progress with every batch and are not a hang. A checkpoint, a compilation, and a rank
that computes outside of any collective (a metric over all images, after the last batch of an evaluation) get ten
minutes before they count as a hang. The first step connects the ranks, loads kernels and compiles: it gets five
minutes, unless one rank does nothing and all others wait for it. If other ranks progress, one blocked rank is not a
hang of the job. If steps followed, it was a pause and is reported as a note.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, Stall, StalledRank
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.advisor.model.wording.rank_words import in_phase
from rn50_advisor.rules.failures.uneven_data import uneven_data
from rn50_advisor.rules.first_ending import HANGS_AFTER_S, died_of_it
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

# In these phases a rank that sleeps in a line of the script is not filling a loader, evaluating or writing a checkpoint.
_STEP_PHASES = ("forward", "backward", "clip", "optimizer", "gap")
_HANG_FAILURES = ("watchdog", "watchdog stuck", "late rank", "mismatched collectives")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not a.stalls and not a.world_size:
        return NotMeasured(RULE.id, (STEP_TIME_S,))  # without any observed rank nothing is known to move
    stall = next((s for s in reversed(a.stalls) if _hangs(a, s, t)), None)
    if stall is not None:
        return _hang(a, stall, t)
    stall = next((s for s in reversed(a.stalls) if _halts(a, s, t)), None)
    return Clear(RULE.id) if stall is None else _halt(a, stall, t)


def _hang(a: Analysis, stall: Stall, t: Thresholds) -> Finding:
    culprit = _culprit(stall)
    named = culprit.culprit
    killed = died_of_it(a, stall, _limit_s(stall, t))
    uneven = uneven_data(a, {rank.rank: rank.step for rank in stall.ranks})
    over = "hung" if stall.ended else "hangs"
    state = "computes" if culprit.working else "is stuck"
    if culprit.waiting_in_collective:
        state = "waits in another collective than the others"
    if culprit.halted == "stopped":
        state = "was stopped by a signal"
    title = (
        f"The job {over}: rank {culprit.rank} {state}{_place(culprit)}"
        if named
        else f"The job {over}: {_all_wait(stall)}"
    )
    if stall.resumed:
        title = f"No progress for {stall.stalled_s:.0f} s, then the job went on" + (
            f": rank {culprit.rank} was stuck{_place(culprit)}" if named else ""
        )
    return Finding(
        rule=RULE.id,
        title=title,
        severity="low" if stall.resumed else "high" if stall.ended else "critical",
        confidence=0.95 if named and culprit.file else 0.7,
        seconds_per_step=0.0,
        scope=Affected(ranks=(culprit.rank,) if named else (), since_step=culprit.step),
        evidence=(*_evidence(a, stall, _limit_s(stall, t)), *((uneven.evidence,) if uneven else ())),
        fixes=(*((uneven.fix,) if uneven else ()), _fix(culprit, stall)),
        fatal=not stall.ended or killed,
        circumstances=frozenset({"ended a rank"} if killed else ()),
    )


def _halt(a: Analysis, stall: Stall, t: Thresholds) -> Finding:
    """An early finding before it counts as a hang: this rank has not moved, and the others wait for it."""
    culprit = _culprit(stall)
    does = f"{'computes' if culprit.working else 'sleeps'}{_place(culprit)}"
    if culprit.halted == "stopped":
        does = "was stopped by a signal"
    return Finding(
        rule=RULE.id,
        title=f"Rank {culprit.rank} has not moved for {stall.stalled_s:.0f} s and blocks the others: it {does}",
        severity="high",
        confidence=0.6,
        seconds_per_step=0.0,
        scope=Affected(ranks=(culprit.rank,), since_step=culprit.step),
        evidence=_evidence(a, stall, t["early_seconds"] if culprit.halted else _limit_s(stall, t)),
        fixes=(_fix(culprit, stall),),
        urgent=True,
    )


def _culprit(stall: Stall) -> StalledRank:
    culprits = [rank for rank in stall.ranks if rank.culprit] or list(stall.ranks)
    return max(culprits, key=lambda rank: rank.since_s)


def _unobserved(stall: Stall) -> int:
    """Number of ranks of the group that were not observed: they are on another node, or have ended."""
    return max(0, stall.group_size - len(stall.ranks))


def _all_wait(stall: Stall) -> str:
    if not _unobserved(stall):
        return "all ranks wait in a collective"
    who, s = _ranks(tuple(rank.rank for rank in stall.ranks)), "s" if len(stall.ranks) == 1 else ""
    return f"{who} wait{s} in a collective for {_unobserved(stall)} of {stall.group_size} that were not observed here"


def _place(rank: StalledRank) -> str:
    return f" in {rank.function} ({rank.file}:{rank.line})" if rank.file else ""


def _evidence(a: Analysis, stall: Stall, limit_s: float) -> tuple[Evidence, ...]:
    usual = f"no progress; a step usually takes {duration(stall.typical_step_s)}"
    stalled = Evidence("stalled", stall.stalled_s, "s", limit_s, usual, "explains")
    if not stall.typical_step_s:
        usual = "no progress; the usual step time is not known yet"
        stalled = Evidence("stalled", stall.stalled_s, "s", limit_s, usual, form="explains")
    return (
        stalled,
        *_collective(stall),
        *(_row(rank) for rank in stall.ranks),
        *_stack(_culprit(stall)),
        *_last_message(a),
    )


def _fix(culprit: StalledRank, stall: Stall) -> Fix:
    if culprit.halted == "stopped":
        return Fix(f"find what stopped rank {culprit.rank}; kill -CONT resumes it", "", None, "outside the code")
    waiting = [rank.rank for rank in stall.ranks if rank.waiting_in_collective]
    where = Where(culprit.file, culprit.line) if culprit.file else None
    return Fix(_advice(culprit, waiting, stall), culprit.leaf, where, "small change")


def _last_message(a: Analysis) -> tuple[Evidence, ...]:
    """The job's own last message about it: a watchdog, a monitored barrier, mismatched collectives."""
    failure = a.failure
    if failure is None or failure.kind not in _HANG_FAILURES:
        return ()
    who = "" if failure.rank is None else f"rank {failure.rank}: "
    return (Evidence("failure", failure.kind, "", None, f"{who}{failure.title}; {failure.line}"),)


def _collective(stall: Stall) -> tuple[Evidence, ...]:
    """The collective that is stuck, and the ranks that have reached it."""
    stuck = stall.collective
    if stuck is None:
        return ()
    size = f" of {stuck.elements} elements" if stuck.elements else ""
    note = f"{_ranks(stuck.present)} in it" + (f", {_ranks(stuck.missing)} not" if stuck.missing else "")
    if stuck.differing:
        note = f"the ranks call different ones: {stuck.differing}"
    details = f"{note}; {stuck.group_size} ranks belong to its group; by {stuck.source}"
    return (Evidence("collective", f"{stuck.kind}{size}, number {stuck.number}", "", None, details, "explains"),)


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"


def _advice(culprit: StalledRank, waiting: list[int], stall: Stall) -> str:
    if stall.collective is not None and stall.collective.differing:
        return f"compare the calls: at the same place {stall.collective.differing}"
    if not culprit.culprit and _unobserved(stall):
        return "check the missing ranks: they are on another node, whose run shows more, or ended earlier"
    if not culprit.culprit:
        return "compare the calls: all ranks wait, so one rank skipped this collective, or they called different ones"
    if culprit.waiting_in_collective:
        return f"compare the calls: rank {culprit.rank} has not reached the others' collective, or called one too many"
    waits = "waits" if len(waiting) == 1 else "wait"
    others = f"; {_ranks(tuple(waiting))} only {waits} for it" if waiting else ""
    return f"check rank {culprit.rank}'s line{others}"


def _limit_s(stall: Stall, t: Thresholds) -> float:
    return max(t["seconds"], t["times_p99"] * stall.p99_step_s)


def _hangs(a: Analysis, stall: Stall, t: Thresholds) -> bool:
    if stall.others_moved:
        return False
    # a job that a watchdog or a user ended was not computing a long metric
    died = died_of_it(a, stall, _limit_s(stall, t))
    working = any(rank.culprit and rank.working for rank in stall.ranks) and not died
    saving = any(rank.phase == "checkpoint" for rank in stall.ranks)
    compiling = any(rank.compiling for rank in stall.ranks)
    # but a user who ends a job that compiles did not wait for a hang
    ended_by_itself = died and not a.stopped_from_outside
    blocker = _blocker(stall)
    in_first_step = _in_first_step(stall) and not ended_by_itself and not (blocker is not None and blocker.halted)
    given = {
        "checkpoint_seconds": saving,
        "compile_seconds": compiling,
        "working_seconds": working,
        "first_step_seconds": in_first_step,
    }
    patience_s = max((t[name] for name, needed in given.items() if needed), default=0.0)
    return stall.stalled_s >= max(_limit_s(stall, t), patience_s)


def _in_first_step(stall: Stall) -> bool:
    """True if the ranks that block the others (all ranks if none is known to block) are in their first step."""
    culprits = [rank for rank in stall.ranks if rank.culprit]
    return all(rank.step == 0 for rank in culprits or stall.ranks)


def _blocker(stall: Stall) -> StalledRank | None:
    """The one rank for which all others wait in a collective; None if there is no single one."""
    culprits = [rank for rank in stall.ranks if rank.culprit]
    if len(stall.ranks) < 2 or len(culprits) != 1:
        return None
    (culprit,) = culprits
    return culprit if all(rank.waiting_in_collective for rank in stall.ranks if rank is not culprit) else None


def _halts(a: Analysis, stall: Stall, t: Thresholds) -> bool:
    """True if one rank does nothing in a training phase, or computes for long, while all others wait: no harmless state
    looks like this.
    """
    culprit = _blocker(stall)
    if culprit is None or not a.running or stall.ended or stall.others_moved:
        return False
    if culprit.halted:
        long = stall.stalled_s >= max(t["early_seconds"], t["times_p99"] * stall.p99_step_s)
        return long and (culprit.halted == "stopped" or culprit.phase in _STEP_PHASES)
    # evaluations and checkpoints are separate phases
    computes = culprit.working and culprit.phase in _STEP_PHASES and not culprit.compiling and not _in_first_step(stall)
    return computes and stall.stalled_s >= _limit_s(stall, t)


def _stack(culprit: StalledRank) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"stack of rank {culprit.rank}", frame, "", None, "called from here" if place else "where it is")
        for place, frame in enumerate(culprit.frames)
    )


def _row(rank: StalledRank) -> Evidence:
    place = f"{rank.function} ({rank.file}:{rank.line})" if rank.file else "no stack"
    note = f"step {rank.step}, {in_phase(rank.phase)} for {rank.since_s:.0f} s, {place}"
    does = "waits for others" if rank.waiting_in_collective else "computes" if rank.working else "is stuck"
    return Evidence(f"rank {rank.rank}", does, "", None, note, "explains")


RULE = rule(
    __name__,
    "Hang",
    check,
    severities=("critical", "high", "low"),
    thresholds={
        "seconds": Threshold(HANGS_AFTER_S, "shorter pauses have many harmless causes"),
        "times_p99": Threshold(10.0, "ten times the slowest usual step"),
        "checkpoint_seconds": Threshold(600.0, "large models write for minutes"),
        "compile_seconds": Threshold(600.0, "large models compile for minutes, and again when shapes change"),
        "working_seconds": Threshold(
            600.0, "a metric over a whole data set takes minutes; an endless loop is reported after that"
        ),
        "first_step_seconds": Threshold(
            300.0, "the first step connects the ranks, loads kernels, tunes and compiles for minutes"
        ),
        "early_seconds": Threshold(15.0, "if one rank does nothing; the agent checks after this time"),
    },
    steady_steps=0,
)
