"""What the rules on the user's own computing inside the step share: whose, where, and the step with less of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import (
    Affected,
    Clear,
    Evidence,
    Finding,
    Fix,
    NotMeasured,
    Saving,
    Severity,
    Where,
)
from rn50_advisor.advisor.model.gpu.gpu_pace import long_forward
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import on_ranks
from rn50_advisor.rules.rule import confidence, severity
from rn50_advisor.rules.stragglers import slows_the_wire

_ERRORS = 1.5  # standard errors of the looks
_LOOKS_MIN = 10  # at a line: of fewer it is not known well enough to be named


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What ranks compute so, in a line of the user's. `error`: by how much the looks may be off, as a share of what they found."""

    seconds: Mapping[int, float]
    ranks: tuple[int, ...]  # that do, where the others do not
    where: Where
    error: float
    lost_s: float
    level: Severity
    evidence: tuple[Evidence, ...]


def own_code(
    rule: str, a: Analysis, value: str, lines: Sequence[HotLine], *, least: float, between: str
) -> OwnCode | Clear | NotMeasured:
    """`least`: share of the step from which on it is worth a word."""
    step, spent, model = a.value("step.time_s"), a.by_rank(value), model_of(a)
    whose = tuple(rank for rank, s in spent.items() if s >= least * step)
    line = next((line for line in lines if line.samples >= _LOOKS_MIN), None)
    if not whose or line is None:
        return NotMeasured(rule, (value,)) if _unseen(a, value, least) else Clear(rule)
    lost_s = step - step_without(a, spent, 1.0)
    level = severity(lost_s / step)
    if lost_s < least * step or level is None:
        return Clear(rule)
    most = max(whose, key=lambda rank: spent[rank])
    said = f"of a {1000 * step:.3g} ms step rank {most} computes between {between}"
    place = f"{line.file}:{line.line} in {line.function}" + (f", in {line.leaf}" if line.leaf else "")
    return OwnCode(
        seconds=spent,
        ranks=whose if len(whose) < len(model.own) else (),
        where=Where(line.file, line.line),
        error=_ERRORS / math.sqrt(sum(line.samples for line in lines)),
        lost_s=lost_s,
        level=level,
        evidence=(
            Evidence(value, spent[most], "s", least * step, said),
            Evidence("stack samples", float(line.samples), "", None, place),
        ),
    )


def finding_of(rule: str, a: Analysis, found: OwnCode, title: str, *, fix: Fix, saving: Saving) -> Finding:
    return Finding(
        rule=rule,
        title=title + on_ranks(found.ranks),
        severity=found.level,
        confidence=confidence(a),
        seconds_per_step=found.lost_s,
        explains=slows_the_wire(a, found.lost_s),
        scope=Affected(ranks=found.ranks),
        evidence=found.evidence,
        fixes=(fix,),
        saving=saving,
    )


def step_without(a: Analysis, seconds: Mapping[int, float], part: float) -> float:
    """The step with that part of it taken from the forward passes."""
    model = model_of(a)
    return model.step_if(
        {(rank, "forward"): max(0.0, model.own[rank]["forward"] - part * s) for rank, s in seconds.items()}
    )


def _unseen(a: Analysis, value: str, least: float) -> bool:
    """A rank that a loader feeds has a long forward pass, and nobody saw what is in it."""
    own, seen = model_of(a).own, a.by_rank(value)
    return any(
        rank not in seen and long_forward(own[rank]["forward"], own[rank]["backward"]) >= least * a.value("step.time_s")
        for rank in a.by_rank("loader.workers")
        if rank in own
    )
