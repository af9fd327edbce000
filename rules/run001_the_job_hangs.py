"""The job hangs.

What it does: finds jobs in which no rank has finished a step or moved on to another phase for far longer than any step took, and names
the rank that keeps the others.

Why it matters: a hung job pays for every accelerator it holds until somebody looks, or until a watchdog kills it half an hour later.

Evidence: how long nothing has moved against the longest usual step; for each rank its phase, step and Python stack. The culprit is the
rank that is not waiting in a collective: the others wait for it. Which collective that is, its number, and which ranks have come to it,
by the recorder's own count of calls from Python and by torch's flight recorder. Where a watchdog ended the job, what it said, and the
rank that it shows to be behind.

Fix: look at the culprit's line. A rank that left the loop early, an uneven number of batches, a lock, a read that never returns, or a
collective that not all ranks call are the usual ones.

False alarms: long evaluations move on with every batch and are no hang; a checkpoint is given ten minutes.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis, Stall, StalledRank
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix, Where
from advisor.core.format import numbers
from rules.rule import Threshold, Thresholds, rule

_OF_HANGS = ("watchdog", "watchdog stuck", "late rank", "mismatched collectives")


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    stall = next((s for s in reversed(a.stalls) if _hangs(s, t)), None)
    if stall is None:
        return Clear(RULE.id)
    culprits = [rank for rank in stall.ranks if rank.culprit] or list(stall.ranks)
    culprit = max(culprits, key=lambda rank: rank.since_s)
    named = culprit.culprit
    waiting = [rank.rank for rank in stall.ranks if rank.waiting_in_collective]
    place = f" in {culprit.function} ({culprit.file}:{culprit.line})" if culprit.file else ""
    over = "hung" if stall.ended else "hangs"
    stands = "waits in another collective than the others" if culprit.waiting_in_collective else "stands"
    title = (
        f"The job {over}: rank {culprit.rank} {stands}{place}"
        if named
        else f"The job {over}: all ranks wait in a collective"
    )
    return Finding(
        rule=RULE.id,
        title=title,
        severity="high" if stall.ended else "critical",
        confidence=0.95 if named and culprit.file else 0.7,
        seconds_per_step=0.0,
        scope=Affected(ranks=(culprit.rank,) if named else (), since_step=culprit.step),
        evidence=(
            Evidence(
                "stalled",
                stall.stalled_s,
                "s",
                _limit_s(stall, t),
                f"nothing moved; a step usually takes {stall.typical_step_s:.3g} s",
            ),
            *_collective(stall),
            *(_row(rank) for rank in stall.ranks),
            *_told(a),
        ),
        fixes=(
            Fix(
                _advice(culprit, waiting, stall),
                culprit.leaf,
                Where(culprit.file, culprit.line) if culprit.file else None,
                "small change",
            ),
        ),
        fatal=not stall.ended,
    )


def _told(a: Analysis) -> tuple[Evidence, ...]:
    """What the job itself said of it in the end: a watchdog, a barrier that was monitored, collectives that do not match."""
    failure = a.failure
    if failure is None or failure.kind not in _OF_HANGS:
        return ()
    who = "" if failure.rank is None else f"rank {failure.rank}: "
    return (Evidence("failure", failure.kind, "", None, f"{who}{failure.title}; {failure.line}"),)


def _collective(stall: Stall) -> tuple[Evidence, ...]:
    """Which one it is, and who has come to it."""
    stuck = stall.collective
    if stuck is None:
        return ()
    size = f" of {stuck.elements} elements" if stuck.elements else ""
    note = f"{_ranks(stuck.present)} in it" + (f", {_ranks(stuck.missing)} not" if stuck.missing else "")
    if stuck.differing:
        note = f"the ranks call different ones: {stuck.differing}"
    told = f"{note}; {stuck.group_size} ranks belong to its group; by {stuck.source}"
    return (Evidence("collective", f"{stuck.kind}{size}, number {stuck.number}", "", None, told),)


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"


def _advice(culprit: StalledRank, waiting: list[int], stall: Stall) -> str:
    if stall.collective is not None and stall.collective.differing:
        return f"compare the calls: at the same place {stall.collective.differing}"
    if not culprit.culprit:
        return "compare the calls: all ranks wait, so some rank skipped this collective, or they called different ones"
    if culprit.waiting_in_collective:
        return f"compare the calls: rank {culprit.rank} has not come to the collective of the others, or called one too many"
    others = f"; ranks {numbers(waiting)} only wait for it" if waiting else ""
    return f"look at rank {culprit.rank}'s line{others}"


def _limit_s(stall: Stall, t: Thresholds) -> float:
    return max(t["seconds"], t["times_p99"] * stall.p99_step_s)


def _hangs(stall: Stall, t: Thresholds) -> bool:
    saving = any(rank.phase == "checkpoint" for rank in stall.ranks)
    return stall.stalled_s >= max(_limit_s(stall, t), t["checkpoint_seconds"] if saving else 0.0)


def _row(rank: StalledRank) -> Evidence:
    place = f"{rank.function} ({rank.file}:{rank.line})" if rank.file else "no stack"
    note = f"step {rank.step}, in {rank.phase} for {rank.since_s:.0f} s, {place}"
    return Evidence(f"rank {rank.rank}", "waits for others" if rank.waiting_in_collective else "stands", "", None, note)


RULE = rule(
    __name__,
    "the job hangs",
    check,
    thresholds={
        "seconds": Threshold(30.0, "shorter pauses have many harmless causes"),
        "times_p99": Threshold(10.0, "ten times the slowest usual step"),
        "checkpoint_seconds": Threshold(600.0, "large models write for minutes"),
    },
    steady_steps=0,
)
