"""Shared by the rules on the user's own computing inside the step: its ranks, its line, and the step with less of it."""

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
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import model_of, taken_from
from rn50_advisor.rules.loop.between_steps import line_words, on_ranks
from rn50_advisor.rules.rule import confidence, severity

FORWARD = ("forward",)
_STANDARD_ERRORS = 1.5  # of the stack samples
_LINE_SAMPLES_MIN = 10  # samples at a line: with fewer it is too uncertain to be named


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Compute of ranks in a line of user code. `error`: uncertainty of the samples, as a share of the measured time."""

    seconds: Mapping[int, float]
    ranks: tuple[int, ...]  # empty if all do
    where: Where
    error: float
    lost_s: float
    level: Severity
    evidence: tuple[Evidence, ...]


def own_code(
    rule: str,
    a: Analysis,
    measure: RankMeasure,
    lines: Sequence[HotLine],
    *,
    least: float,
    doing: str,
    phases: Sequence[str] = FORWARD,
) -> OwnCode | Clear | NotMeasured:
    """The user's computing behind `measure`, in these phases. `least`: the share of the step from which it is reported; `doing`: what the
    rank does then.
    """
    step, spent, model = a.value(STEP_TIME_S), a.by_rank(measure), model_of(a)
    whose = tuple(rank for rank, s in spent.items() if s >= least * step)
    line = next((line for line in lines if line.samples >= _LINE_SAMPLES_MIN), None)
    if not whose or line is None:
        return NotMeasured(rule, (measure,)) if _unprofiled(a, measure, least) else Clear(rule)
    lost_s = step - step_without(a, spent, 1.0, phases)
    level = severity(lost_s / step)
    if lost_s < least * step or level is None:
        return Clear(rule)
    most = max(whose, key=lambda rank: spent[rank])
    note = f"of a {duration(step)} step, in which rank {most} {doing}"
    place = line_words(line)
    return OwnCode(
        seconds=spent,
        ranks=whose if len(whose) < len(model.own) else (),
        where=Where(line.file, line.line),
        error=_STANDARD_ERRORS / math.sqrt(sum(line.samples for line in lines)),
        lost_s=lost_s,
        level=level,
        evidence=(
            Evidence.of(measure, spent[most], least * step, note, form="continues"),
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
        scope=Affected(ranks=found.ranks),
        evidence=found.evidence,
        fixes=(fix,),
        saving=saving,
    )


def step_without(a: Analysis, seconds: Mapping[int, float], part: float, phases: Sequence[str] = FORWARD) -> float:
    """The step if this part of it is removed, from the first of these phases as far as it goes, then from the next."""
    model = model_of(a)
    left = {rank: taken_from(model.own[rank], phases, part * s) for rank, s in seconds.items()}
    return model.step_if({(rank, phase): s for rank, phases in left.items() for phase, s in phases.items()})


def saving_without(
    a: Analysis, found: OwnCode, basis: str, *, left: float, phases: Sequence[str] = FORWARD, times: float = 1.0
) -> Saving:
    """The gain if nothing of this computing remained at best, and at worst this share of it. `times`: as much again may come later."""
    model = model_of(a)
    best, worst = (
        step_without(a, found.seconds, part, phases)
        for part in ((1.0 + found.error) * times, 1.0 - max(left, found.error))
    )
    return model.saving(model.at_best(best), worst, basis)


def _unprofiled(a: Analysis, measure: RankMeasure, least: float) -> bool:
    """True if a rank fed by a loader has a long forward pass that was not profiled."""
    own, profiled = model_of(a).own, a.by_rank(measure)
    return any(
        rank not in profiled
        and long_forward(own[rank]["forward"], own[rank]["backward"]) >= least * a.value(STEP_TIME_S)
        for rank in a.by_rank(LOADER_WORKERS)
        if rank in own
    )
