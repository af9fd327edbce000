"""Slowdown during the run.

What it does: finds a step from which on the typical step takes at least a tenth longer, permanently or for a long time.
It reports the step, the rank, the phase and what else changed then: cores kept busy by other processes, a quota, clocks
of the GPU, disks.

Fires when: steps are ≥ 10 % slower from some step on, permanently or for long; reports when, on which rank, and what else changed
then; a note if the model learns more or sees larger batches, or if no loader shows how much work a step has.

Why it matters: a mean over the whole run hides it, and mixes the present problem with earlier ones.

Evidence: the median step of the stretch before against the stretch after, if almost every part of the one is slower
than almost every part of the other; the phase that grew most; readings of the host before and after.

Fix: whatever coincides with the change, or what the program starts to do at that step.

Estimate: steps as short as before the change, at best with warm caches; at worst half of that gain. While the change
lasts, the gain and the severity refer to today's step; a change that is over refers to the run as a whole.

False alarms: evaluations, checkpoints and first batches of epochs are excluded; warm caches make jobs faster, not
slower. On a shared machine forward and backward of all ranks sometimes grow together, by up to a third for half a
minute and without a visible cause: such a change must be larger. If more or other parameters are trained since then, images are
larger (unfreezing, a second model, progressive resizing), or steps have more differentiable operations (longer episodes and
sequences), the model has more work, and the change is only a note. Without a DataLoader, work may grow unseen: that is reported
with low severity, unless something else changed at that time. Short stretches are not conclusive. A slowdown with a cause of its
own (a quota, neighbours, a slow rank) is reported under that rule, and this finding is listed with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis, Coincidence, SpeedChange
from rn50_advisor.advisor.model.findings import (
    Affected,
    Circumstance,
    Clear,
    Evidence,
    Finding,
    Fix,
    NotMeasured,
    Saving,
    Severity,
)
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_TEMP_C
from rn50_advisor.advisor.model.measures.host_measures import CPU_OTHER_CORES, CPU_STEAL_SHARE, QUOTA_THROTTLED_S_PER_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_STEADY, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import clock, quantity
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GREW: Mapping[str, Circumstance] = {
    "input_wait": "input grew",
    "forward": "computing grew",
    "backward": "computing grew",
    "optimizer": "computing grew",
    "comm_exposed": "exchange grew",
    "gap": "gap grew",
}
# Host metrics that make jobs slower when they rise, and when they fall.
_WORSE_IF_HIGHER = (CPU_OTHER_CORES, CPU_STEAL_SHARE, QUOTA_THROTTLED_S_PER_S, "disk.busy_share", GPU_TEMP_C)
_WORSE_IF_LOWER = ("gpu.sm_clock_mhz", "mem.available_gb")
_STEADY_STEPS_MIN = 80  # steady steps: a change needs forty on both sides
_UNKNOWN_WORK = Evidence(
    "work", "unknown", "", None, "no DataLoader feeds this loop: its steps may have more work, such as longer episodes"
)
_ADVICE = {
    "input_wait": "check what data loading starts to read or compute at step {step}",
    "comm_exposed": "check for other network traffic since then",
    "gap": "check what the loop does after each step since step {step}",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    found = [change for change in a.changes if _counts(change, t)]
    if not found and a.step_time.steady_steps < _STEADY_STEPS_MIN:
        return NotMeasured(RULE.id, (STEP_STEADY,))
    if not found:
        return Clear(RULE.id)
    change = max(found, key=lambda each: (not each.work, each.lost_share))
    level: Severity | None = severity(_share(change))
    if level is not None and change.work:
        level = "info"
    unknown_work = _may_be_more_work(a, change)
    if level is not None and unknown_work:
        level = "low"
    if level is None:
        return Clear(RULE.id)
    model = model_of(a)
    lost_s = change.lost_share * model.step_s
    slower = change.after_s / change.before_s
    return Finding(
        rule=RULE.id,
        title=f"Slowdown: {slower:.2g}× step time from step {change.step}" + _on_rank(change),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost_s,
        scope=Affected(ranks=() if change.rank is None else (change.rank,), since_step=change.step),
        evidence=(
            Evidence("step time", change.after_s, "s", t["ratio"] * change.before_s, _when(change), form="explains"),
            Evidence(
                "phase that grew most",
                change.phase,
                "",
                None,
                f"by {quantity(change.phase_s, 's')} per step",
                form="explains",
            ),
            *((Evidence("work", change.work, "", None, "more work per step", "explains"),) if change.work else ()),
            *((_UNKNOWN_WORK,) if unknown_work else ()),
            *(_coincidence(reading) for reading in change.coincidences[:4]),
            *(_another(other) for other in found if other is not change),
        ),
        fixes=(Fix(_advice(change), "", None, "small change"),),
        saving=None if change.work else _saving(model, change),
        circumstances=frozenset({_GREW[change.phase]} if change.phase in _GREW else ()),
    )


def _counts(change: SpeedChange, t: Thresholds) -> bool:
    like_a_machine = change.alike and not any(_explains(reading) for reading in change.coincidences)
    enough = change.after_s >= (t["alike"] if like_a_machine else t["ratio"]) * change.before_s
    long = min(change.steps_before, change.steps_after) >= t["steps"] and change.lasted_s >= t["seconds"]
    return enough and long


def _may_be_more_work(a: Analysis, change: SpeedChange) -> bool:
    """Without a known data source the work of a step is unknown; and nothing else explains the change."""
    fed = bool(a.loaders) or (a.feed is not None and a.feed.measured)
    grew = change.rank is None and change.phase in ("forward", "backward") and not change.work
    return not fed and grew and not any(_explains(reading) for reading in change.coincidences)


def _explains(reading: Coincidence) -> bool:
    """True if this reading got worse, and not as a result of the slower job."""
    return (
        reading.after > reading.before
        if reading.metric in _WORSE_IF_HIGHER
        else reading.after < reading.before and reading.metric in _WORSE_IF_LOWER
    )


def _share(change: SpeedChange) -> float:
    """The lost share: of today's step while the change lasts, of the whole run afterwards."""
    return 1.0 - change.before_s / change.after_s if change.until_s is None else change.lost_share


def _saving(model: StepModel, change: SpeedChange) -> Saving:
    """The saving against today's step while the change lasts: a mean over the run would understate a recent change."""
    now_s, lost_s = model.step_s, change.lost_share * model.step_s
    if change.until_s is None:
        now_s, lost_s = change.after_s, change.after_s - change.before_s
    now = replace(model, step_s=now_s)
    return now.saving(now.at_best(now_s - lost_s), now_s - 0.5 * lost_s, "steps as short as before the change")


def _on_rank(change: SpeedChange) -> str:
    return f", on rank {change.rank}" if change.rank is not None else ""


def _when(change: SpeedChange) -> str:
    until = f" until {clock(change.until_s)}" if change.until_s is not None else ""
    return f"since {clock(change.t_s)}{until} ({quantity(change.before_s, 's')} before, over {change.steps_before:.0f} steps)"


def _coincidence(reading: Coincidence) -> Evidence:
    scope = "" if reading.scope in ("job", "host") else f", {reading.scope.replace(':', ' ')}"
    return Evidence(
        reading.metric, reading.after, reading.unit, None, f"{quantity(reading.before, reading.unit)} before{scope}"
    )


def _another(change: SpeedChange) -> Evidence:
    slower = change.after_s / change.before_s
    return Evidence("another change", slower, "×", None, f"at step {change.step}{_on_rank(change)}, {_when(change)}")


def _advice(change: SpeedChange) -> str:
    if change.work:
        return f"no fix is needed if this is intended: {change.work}"
    moved = {reading.metric: reading for reading in change.coincidences}
    if QUOTA_THROTTLED_S_PER_S in moved:
        return "raise the CPU quota that throttles the rank since then"
    others = moved.get(CPU_OTHER_CORES)
    if others is not None and others.after > others.before:
        return f"find the processes that keep {others.after:.2g} cores busy since then, and move them"
    gpu = moved.get("gpu.sm_clock_mhz")
    if gpu is not None and gpu.after < gpu.before:
        return f"find out why the clock of {gpu.scope.replace(':', ' ').upper()} fell then: temperature, power limit"
    generic = "check what {who} does from step {step} on"
    who = "the program" if change.rank is None else f"rank {change.rank}"
    return _ADVICE.get(change.phase, generic).format(step=change.step, who=who)


RULE = rule(
    __name__,
    "Slowdown during the run",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "ratio": Threshold(1.10, "smaller changes come and go on any machine"),
        "alike": Threshold(
            1.40,
            "forward and backward together grew by up to 1.35 in sound jobs on a shared machine, for half a minute",
        ),
        "steps": Threshold(40, "steps on both sides: fewer may be a passing fluctuation"),
        "seconds": Threshold(8, "seconds: a burst of another process is over by then"),
    },
)
