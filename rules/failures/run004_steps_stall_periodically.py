"""Periodic stalls.

What it does: finds steps that are far longer than the usual one and recur with a period, in steps or in seconds, and
names the rank, the phase and what coincides with them.

Fires when: stalls with a period take ≥ 3 % of the time; names what coincides; a note if the model only computes more then.

Why it is slow: with several ranks every stall of one of them stops all.

Evidence: the period, the number of stalls, their time beyond the usual step, and their share of the time. A stall is a
step that exceeds the median by five median deviations and by a third; it is periodic if three of four distances between
stalls are equal.

Fix: look for what the loop does every N steps: a metric that is fetched, a log, a cache that is emptied. If the stalls
grow, it works on all that came before: reset the metric, or keep running sums. If the period
is in seconds, look for what else runs on the machine at that rate. A rollout is made cheaper by stepping many
environments at once.

Estimate: at best no stalls and warm caches; at worst half of the stalls. There is no estimate for steps that compute
more, nor for rollouts.

False alarms: evaluations, checkpoints, garbage collections and epoch starts are periodic too. They are named, and
belong to LOP003, LOP001, CPU006 and DAT006: here they are never more than a note. The same holds for steps whose
forward and backward take longer together, on all ranks: a GAN's second network trains, or a penalty is added. If a
loop without a loader calls the model outside its steps, it collects data for reinforcement learning where that call
steps an environment, returns what the loss is computed of, or is mostly other work. Random stalls, however long, have
no period.
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
from rn50_advisor.advisor.model.measures.step_measures import STEP_STEADY, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration, share
from rn50_advisor.rules.analysis_reading import model_of, stalls_asleep
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_STEADY_STEPS_MIN = (
    30  # steady steps: fewer cannot hold five stalls of the shortest period with usual steps around them
)
_MORE_WORK = "more work for the model"
_LABELLED = frozenset(("an epoch begins", "a checkpoint", "an evaluation", "a garbage collection", _MORE_WORK))
_EVALUATION_MODEL_SHARE_MIN = 0.5  # of a call's time in the model: an evaluation, or generated text, is little else
_GAP_SHARE_MIN = 0.2  # of the stalls: from there on lines between the steps belong to them
_ONLY_NEW = "process only new values (running sums, a metric that is reset)"
_REMEDIES = {
    "a disk flush": (
        "write less at once: in the background, to a faster disk, or start write-back earlier (vm.dirty_background_bytes)"
    ),
    "a garbage collection in a worker": (
        "gc.freeze() and gc.set_threshold(100_000, 10, 10) in worker_init_fn: fewer objects are traversed, less often"
    ),
}
_PLACES = {
    "input_wait": "in the data loading",
    "forward": "between the batch and the backward",
    "gap": "after the optimizer",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    stall = a.pulse
    if stall is None and a.step_time.steady_steps < _STEADY_STEPS_MIN:
        return NotMeasured(RULE.id, (STEP_STEADY,))
    if stall is None or stall.share < t["share"] or stall.events < t["events"]:
        return Clear(RULE.id)
    level: Severity | None = severity(stall.share)
    rollout = _rollout(stall)
    if stall.coincides in _LABELLED or rollout:
        level = "info"
    if level is None:
        return Clear(RULE.id)
    model = model_of(a)
    lost_s = stall.share * model.step_s
    more_work = stall.coincides == _MORE_WORK
    what = "computes more" if more_work else "stalls"
    return Finding(
        rule=RULE.id,
        title=f"Periodic stalls: {_every(stall)} a step {what}" + _on_rank(stall) + _called(stall),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost_s,
        scope=Affected(ranks=() if stall.rank is None else (stall.rank,)),
        evidence=(
            Evidence(
                "stall",
                stall.stall_s,
                "s",
                None,
                f"above the usual step of {duration(stall.usual_s)}{_growing(stall)}",
                form="explains",
            ),
            Evidence(
                "share of the time",
                stall.share,
                "share",
                t["share"],
                f"{stall.events} stalls in {stall.steps} steps",
                "explains",
            ),
            Evidence("phase", stall.phase, "", None, _coincides(stall)),
        ),
        fixes=(Fix(_advice(stall), "", _where(a, stall), "small change"),),
        saving=None if more_work or rollout else _saving(model, lost_s),
    )


def _saving(model: StepModel, lost_s: float) -> Saving:
    best = model.at_best(model.step_s - lost_s)
    return model.saving(best, model.step_s - 0.5 * lost_s, "no stalls, or half of them")


def _every(stall: PeriodicStall) -> str:
    """`every 50 steps`, or `every 10.2 s`."""
    return f"every {stall.period_steps:.0f} steps" if stall.period_steps else f"every {duration(stall.period_s)}"


def _on_rank(stall: PeriodicStall) -> str:
    return f", on rank {stall.rank}" if stall.rank is not None else ""


def _called(stall: PeriodicStall) -> str:
    return f": {stall.call.called}" if stall.call is not None and stall.call.called else ""


def _rollout(stall: PeriodicStall) -> bool:
    """True if the loop collects its data with the model: the call runs the model, and is not only that or returns what is trained on."""
    call = stall.call
    return call is not None and call.in_model > 0.0 and (call.collects or call.in_model < _EVALUATION_MODEL_SHARE_MIN)


def _coincides(stall: PeriodicStall) -> str:
    if stall.call is not None and not stall.coincides:
        call = stall.call
        return f"line {call.line} takes {share(call.share)} of the time, {share(call.in_model)} of that in the model"
    return f"coincides with: {stall.coincides}" if stall.coincides else "coincides with no measured event"


def _advice(stall: PeriodicStall) -> str:
    if stall.coincides == _MORE_WORK:
        return "no fix is needed if this is intended: alternating networks, a penalty in the loss"
    if stall.coincides in _LABELLED:
        return f"run it less often, or in the background: {stall.coincides}"
    if _rollout(stall):
        return (
            "no fix is needed if this collects training data; many environments at once need fewer calls of the model"
        )
    if stall.coincides in _REMEDIES:
        return _REMEDIES[stall.coincides]
    if stall.period_steps is None:
        return f"find what runs on this machine every {duration(stall.period_s)}, inside the job or outside it"
    who = "the loop" if stall.rank is None else f"rank {stall.rank}"
    grown = f"; {_ONLY_NEW}, since it grows" if stall.grew else ""
    return f"find what {who} does {_every(stall)} {_PLACES.get(stall.phase, 'there')}{grown}"


def _growing(stall: PeriodicStall) -> str:
    return f", growing from {duration(stall.grew[0])} to {duration(stall.grew[1])}" if stall.grew else ""


def _where(a: Analysis, stall: PeriodicStall) -> Where | None:
    if stall.call is not None:
        return Where(stall.call.file, stall.call.line)
    gap = stall.phase == "gap" or stall.gap_share >= _GAP_SHARE_MIN
    lines = a.hot_lines if gap else a.waiting_lines if stalls_asleep(a) else ()
    return Where(lines[0].file, lines[0].line) if lines else None


RULE = rule(
    __name__,
    "Periodic stalls",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "share": Threshold(0.03, "of the time: as for checkpoints, it is easy to move out of the loop"),
        "events": Threshold(5, "stalls: four equal distances are not chance, two may be"),
    },
)
