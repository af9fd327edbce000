"""Steps stall periodically.

What it does: finds steps that are far longer than the usual one and come with a period, in steps or in seconds, and names the rank, the
phase and what coincides with them.

Why it is slow: with several ranks every stall of one of them stops all.

Evidence: the period, how many stalls there were, what they take beyond the usual step, their share of the time. A stall is a step beyond
the median by five median deviations and by a third; it is periodic where three of four distances between stalls are the same.

Fix: what the loop does every so many steps: a metric that is fetched, a log, a cache that is emptied. With a period in seconds: what else
runs on the machine at that pace.

Estimate: from no stalls, and caches that stay warm, to half of them; none of steps that compute more.

False alarms: evaluations, checkpoints, garbage collections and the begin of epochs come with a period too. They are named, and belong to
LOP003, LOP001, CPU006 and DAT006: here they are never worth more than a note. Nor are steps of which forward and backward take longer
together, on all ranks: a GAN's second network learns, a penalty is added. Stalls at random, however long, have no period.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, PeriodicStall
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
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import SLOW_INPUT, model_of, stalls_asleep
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# What is known to come with a period has a rule that says whether it is too much.
_OWNERS = {
    "an epoch begins": ("DAT006",),
    "a checkpoint": ("LOP001",),
    "an evaluation": ("LOP003",),
    "a garbage collection": ("CPU006",),
    "waiting for a core": ("CPU001", "CPU003", "CPU005"),
    "a disk flush": ("LOP001", "LOP002", "DSK001", "DSK002"),
}
_SEEN = 30  # steady steps: fewer do not hold five stalls of the shortest period, with as much around them
_MORE_WORK = "more work for the model"
_LABELLED = frozenset(("an epoch begins", "a checkpoint", "an evaluation", "a garbage collection", _MORE_WORK))
_CAUSES = {
    # workers that cannot keep up deliver in waves, one batch of each
    "input_wait": (*SLOW_INPUT, "DAT006"),
    "gap": ("LOP001", "LOP002", "LOP004"),
    "gap.checkpoint": ("LOP001",),
    "gap.evaluation": ("LOP003",),
}
_PLACES = {
    "input_wait": "in the data loading",
    "forward": "between the batch and the backward",
    "gap": "after the optimizer",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    stall = a.pulse
    if stall is None and a.step_time.steady_steps < _SEEN:
        return NotMeasured(RULE.id, ("step.steady",))
    if stall is None or stall.share < t["share"] or stall.events < t["events"]:
        return Clear(RULE.id)
    level: Severity | None = severity(stall.share)
    if stall.coincides in _LABELLED:
        level = "info"
    if level is None:
        return Clear(RULE.id)
    model = model_of(a)
    lost_s = stall.share * model.step_s
    more_work = stall.coincides == _MORE_WORK
    what = "computes more" if more_work else "stalls"
    return Finding(
        rule=RULE.id,
        title=f"{_every(stall)[:1].upper()}{_every(stall)[1:]} a step {what}" + _on_rank(stall),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost_s,
        scope=Affected(ranks=() if stall.rank is None else (stall.rank,)),
        evidence=(
            Evidence("stall", stall.stall_s, "s", None, f"beyond the usual step of {duration(stall.usual_s)}"),
            Evidence(
                "share of the time", stall.share, "share", t["share"], f"{stall.events} stalls in {stall.steps} steps"
            ),
            Evidence("phase", stall.phase, "", None, _coincides(stall)),
        ),
        fixes=(Fix(_advice(stall), "", _where(a, stall), "small change"),),
        saving=None if more_work else _saving(model, lost_s),
        explains=(*(() if stall.rank is None else ("COM002",)), *(("LOP007",) if stalls_asleep(a) else ())),
        causes=(*_OWNERS.get(stall.coincides, ()), *_CAUSES.get(stall.phase, ())),
    )


def _saving(model: StepModel, lost_s: float) -> Saving:
    best = model.at_best(model.step_s - lost_s)
    return model.saving(best, model.step_s - 0.5 * lost_s, "no stalls, or half of them")


def _every(stall: PeriodicStall) -> str:
    """`every 50 steps`, or `every 10.2 s`."""
    return f"every {stall.period_steps:.0f} steps" if stall.period_steps else f"every {duration(stall.period_s)}"


def _on_rank(stall: PeriodicStall) -> str:
    return f", on rank {stall.rank}" if stall.rank is not None else ""


def _coincides(stall: PeriodicStall) -> str:
    return f"coincides with: {stall.coincides}" if stall.coincides else "coincides with nothing that was watched"


def _advice(stall: PeriodicStall) -> str:
    if stall.coincides == _MORE_WORK:
        return "none is needed where this is meant: a second network's turn, a penalty in the loss"
    if stall.coincides in _LABELLED:
        return f"do it less often, or beside the training: {stall.coincides}"
    if stall.coincides == "a disk flush":
        return "write less at once: in the background, to a faster disk, or let the kernel begin earlier (vm.dirty_background_bytes)"
    if stall.period_steps is None:
        return f"find what runs on this machine every {duration(stall.period_s)}, inside the job or beside it"
    who = "the loop" if stall.rank is None else f"rank {stall.rank}"
    return f"find what {who} does {_every(stall)} {_PLACES.get(stall.phase, 'there')}"


def _where(a: Analysis, stall: PeriodicStall) -> Where | None:
    lines = a.hot_lines if stall.phase == "gap" else a.waiting_lines if stalls_asleep(a) else ()
    return Where(lines[0].file, lines[0].line) if lines else None


RULE = rule(
    __name__,
    "steps stall periodically",
    check,
    needs=("step.time_s",),
    thresholds={
        "share": Threshold(0.03, "of the time: as for checkpoints, it is easy to take off the loop"),
        "events": Threshold(5, "four distances of one length are no chance, two are"),
    },
)
