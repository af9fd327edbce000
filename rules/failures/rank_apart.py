"""A rank that did something else than the others when the job ended: they gave up waiting for it, or it called a collective alone."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, Death
from rn50_advisor.advisor.model.findings import Evidence, Fix, Where

_TIMEOUT = re.compile(r"[Tt]imed out waiting|Application timeout|operation timeout|Timeout\(ms\)")
_EVALUATION, _CHECKPOINT, _INPUT = "evaluation", "checkpoint", "input_wait"
_ACTIVITIES = {
    _EVALUATION: "evaluates",
    _CHECKPOINT: "writes a checkpoint",
    _INPUT: "waits for its input",
    "gap": "is between two steps",
    "clip": "is between its backward pass and its update",
    "optimizer": "is in its update",
    "forward": "is in its forward pass",
    "backward": "is in its backward pass",
}
_LONGER_TIMEOUT = "a longer timeout: init_process_group(timeout=timedelta(minutes=60))"


@dataclass(frozen=True, slots=True)
class RankApart:
    rank: int
    title: str
    evidence: Evidence
    fix: Fix


def rank_apart(a: Analysis, ranks: Sequence[Death]) -> RankApart | None:
    """`ranks`: those that died, or left the others behind, the first to do so first."""
    return _waited_for(a, ranks) or _alone_in_evaluation(a, ranks) or _alone_in_a_collective(a, ranks)


def _waited_for(a: Analysis, ranks: Sequence[Death]) -> RankApart | None:
    """The one rank that a launcher ended after all others gave up waiting for it."""
    watchdog = a.failure is not None and a.failure.kind == "watchdog"
    gave_up = [d for d in ranks if _TIMEOUT.search(d.exception) or (watchdog and d.signal == signal.SIGABRT)]
    rest = [d for d in ranks if d not in gave_up]
    if not gave_up or len(rest) != 1 or len(ranks) != a.world_size:
        return None
    (late,) = rest
    ended = late.signal == signal.SIGTERM and late.t_s >= gave_up[0].t_s
    if late.rank is None or late.exception or not ended or late.phase in {d.phase for d in gave_up}:
        return None
    who = f"rank {late.rank}"
    does = _ACTIVITIES.get(late.phase, f"is in {late.phase or 'an unknown phase'}")
    others = "the others" if len(gave_up) > 1 else f"rank {gave_up[0].rank}"
    title = f"{others[:1].upper()}{others[1:]} gave up waiting for {who}: it {does}"
    note = f"{who} {does} while {others} waited in a collective until it timed out"
    if late.phase == _EVALUATION:
        change, fix = f"or {_LONGER_TIMEOUT}, and a barrier after it", "distribute the evaluation across the ranks"
    elif late.phase == _CHECKPOINT:
        change = f"or {_LONGER_TIMEOUT}"
        fix = "save asynchronously, or shard the checkpoint across ranks (torch.distributed.checkpoint)"
    else:
        change, fix = f"or {_LONGER_TIMEOUT}", f"find what {who} does there and the others do not"
    return RankApart(late.rank, title, Evidence("waited for", who, "", None, note), Fix(fix, change, _site(a, late)))


def _alone_in_evaluation(a: Analysis, ranks: Sequence[Death]) -> RankApart | None:
    """The one rank whose evaluation exchanges with others that do not evaluate: one of its collectives failed."""
    evaluating = [d for d in ranks if d.phase == _EVALUATION and d.follows]
    if len(evaluating) != 1 or len(ranks) < 2:
        return None
    (alone,) = evaluating
    if alone.rank is None:
        return None
    who = f"rank {alone.rank}"
    within, fix = "it calls a collective", "call the collective on all ranks, or on none"
    if any(facts.get("ddp") for facts in a.rank_facts.values()):
        within = "its forward pass through DistributedDataParallel sends buffers"
        fix = "evaluate with the model inside DistributedDataParallel (`model.module(x)`), or on all ranks"
    return RankApart(
        alone.rank,
        f"Rank {alone.rank} calls a collective in an evaluation that only it runs",
        Evidence("evaluates alone", who, "", None, f"{within}, and no other rank evaluates"),
        Fix(fix, "", _site(a, alone)),
    )


def _alone_in_a_collective(a: Analysis, ranks: Sequence[Death]) -> RankApart | None:
    """The one rank that was elsewhere in its step than all others when their collectives did not fit together.

    Of two ranks, the one that was not in its backward pass: there DistributedDataParallel exchanges by itself.
    """
    if a.failure is None or a.failure.kind != "mismatched collectives" or len(ranks) != a.world_size:
        return None
    phases = {d.rank: d.phase for d in ranks if d.rank is not None and d.phase in _ACTIVITIES}
    places = Counter(phases.values())
    if len(phases) != a.world_size or len(places) != 2:
        return None
    apart = [rank for rank, phase in phases.items() if places[phase] == 1 and (a.world_size > 2 or phase != "backward")]
    if len(apart) != 1:
        return None
    (rank,) = apart
    usual = next(phase for each, phase in phases.items() if each != rank)
    who, others = f"rank {rank}", "the others" if a.world_size > 2 else f"rank {next(r for r in phases if r != rank)}"
    does, do = _ACTIVITIES[phases[rank]], _ACTIVITIES[usual]
    note = f"{who} {does} while {others} {_plural(do) if a.world_size > 2 else do}"
    death = next(d for d in ranks if d.rank == rank)
    return RankApart(
        rank,
        f"Rank {rank} called a collective that the other ranks did not call there: it {does}",
        Evidence("different collectives", who, "", None, note),
        Fix(
            f"call it on all ranks, or on none: look for a collective that only rank {rank} reaches",
            "a branch on the rank (`if rank == 0:`) around all_reduce, gather, broadcast or barrier; logging and metrics that synchronise",
            _site(a, death),
        ),
    )


def _plural(does: str) -> str:
    verb, _, rest = does.partition(" ")
    return {"is": "are", "evaluates": "evaluate", "writes": "write", "waits": "wait"}[verb] + (
        f" {rest}" if rest else ""
    )


def _site(a: Analysis, death: Death) -> Where | None:
    if death.raised is not None and death.raised.file:
        return Where(death.raised.file, death.raised.line)
    if death.phase != _EVALUATION or not a.evaluation_sites:
        return None
    return Where(a.evaluation_sites[0]["file"], a.evaluation_sites[0]["line"])
