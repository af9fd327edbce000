"""The job became slower.

What it does: finds a step from which on the typical step takes at least a tenth longer, for good or for long, and says when that was, on
which rank, in which phase, and what else changed then: cores that others keep busy, a quota, clocks of the GPU, disks.

Why it matters: a mean over the whole run hides it, and what is wrong now is not what was wrong then.

Evidence: the median step of the stretch before against the stretch after, where almost every part of the one is slower than almost every
part of the other; the phase that grew most; readings of the host before and after.

Fix: what coincides with the change, or what the program begins to do at that step.

Estimate: steps as short as before the change, at best with caches that stay warm; at least half of that. While it lasts of what a step
takes now, as the severity; a change that is over costs the run as a whole.

False alarms: evaluations, checkpoints and first batches of epochs are left out; warm caches make jobs faster, not slower. On a shared
machine forward and backward of all ranks grow together now and then, by up to a third for half a minute, and nothing shows why: such a
change must be larger. Where more parameters learn since then, others, or pictures are larger (unfreezing, a second model, progressive
resizing), the model has more to do, and that is but a note; and where no DataLoader was seen, steps may be whole episodes that grow
longer: that is told with low severity, unless something else moved then. Short stretches say nothing. What has a cause of its own (a
quota, neighbours, a slow rank) is told as that, and this beside it.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis, Coincidence, SpeedChange
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving, Severity
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.wording.quantities import clock, quantity
from rn50_advisor.rules.analysis_reading import SLOW_INPUT, model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Whatever phase they hit: where one of these fires too, it is the reason.
_HOST_CAUSES = (
    "CPU001",
    "CPU002",
    "CPU003",
    "CPU005",
    "CPU006",
    "MEM001",
    "MEM002",
    "GPU001",
    "GPU002",
    "GPU005",
    "CMP007",
)
_CAUSES = {
    "input_wait": SLOW_INPUT,
    "comm_exposed": ("COM001", "COM002", "COM009", "DAT008"),
    "gap": ("LOP002", "LOP004"),
}
# Of the readings of the host: what makes jobs slower when it rises, and when it falls.
_RISE = ("cpu.other_cores", "cpu.steal_share", "quota.throttled_s_per_s", "disk.busy_share", "gpu.temp_c")
_FALL = ("gpu.sm_clock_mhz", "mem.available_gb")
_SEEN = 80  # steady steps: a change needs forty on both sides
_UNSEEN_WORK = Evidence(
    "work", "unknown", "", None, "no DataLoader feeds this loop: its steps may have more to do, as longer episodes have"
)
_ADVICE = {
    "input_wait": "look at what the data loading began to read or compute at step {step}",
    "comm_exposed": "look at what else uses the network since then",
    "gap": "look at what the loop does after each step since step {step}",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    found = [change for change in a.changes if _counts(change, t)]
    if not found and a.step_time.steady_steps < _SEEN:
        return NotMeasured(RULE.id, ("step.steady",))
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
        title=f"The job became {slower:.2g}× slower at step {change.step}" + _on_rank(change),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost_s,
        scope=Affected(ranks=() if change.rank is None else (change.rank,), since_step=change.step),
        evidence=(
            Evidence("step time", change.after_s, "s", t["ratio"] * change.before_s, _when(change)),
            Evidence("phase that grew most", change.phase, "", None, f"by {quantity(change.phase_s, 's')} a step"),
            *((Evidence("work", change.work, "", None, "it has more to do"),) if change.work else ()),
            *((_UNSEEN_WORK,) if unknown_work else ()),
            *(_coincidence(seen) for seen in change.coincidences[:4]),
            *(_another(other) for other in found if other is not change),
        ),
        fixes=(Fix(_advice(change), "", None, "small change"),),
        saving=None if change.work else _saving(model, change),
        explains=() if change.rank is None else ("COM002",),
        causes=(*_HOST_CAUSES, *_CAUSES.get(change.phase, ())),
    )


def _counts(change: SpeedChange, t: Thresholds) -> bool:
    like_a_machine = change.alike and not any(_explains(seen) for seen in change.coincidences)
    enough = change.after_s >= (t["alike"] if like_a_machine else t["ratio"]) * change.before_s
    long = min(change.steps_before, change.steps_after) >= t["steps"] and change.lasted_s >= t["seconds"]
    return enough and long


def _may_be_more_work(a: Analysis, change: SpeedChange) -> bool:
    """Nothing that feeds the loop was seen, so nobody knows how much a step has to do; and nothing else explains the change."""
    fed = bool(a.loaders) or (a.feed is not None and a.feed.measured)
    grew = change.rank is None and change.phase in ("forward", "backward") and not change.work
    return not fed and grew and not any(_explains(seen) for seen in change.coincidences)


def _explains(seen: Coincidence) -> bool:
    """What moved for the worse, and not because the job is slower."""
    return seen.after > seen.before if seen.metric in _RISE else seen.after < seen.before and seen.metric in _FALL


def _share(change: SpeedChange) -> float:
    """Of the time: as long as it lasts of what each step takes now, afterwards of the whole run."""
    return 1.0 - change.before_s / change.after_s if change.until_s is None else change.lost_share


def _saving(model: StepModel, change: SpeedChange) -> Saving:
    """A mean over the run would promise next to nothing of a change that has only just come."""
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


def _coincidence(seen: Coincidence) -> Evidence:
    scope = "" if seen.scope in ("job", "host") else f", {seen.scope.replace(':', ' ')}"
    return Evidence(seen.metric, seen.after, seen.unit, None, f"{quantity(seen.before, seen.unit)} before{scope}")


def _another(change: SpeedChange) -> Evidence:
    slower = change.after_s / change.before_s
    return Evidence("another change", slower, "×", None, f"at step {change.step}{_on_rank(change)}, {_when(change)}")


def _advice(change: SpeedChange) -> str:
    if change.work:
        return f"none is needed where this is meant: {change.work}"
    moved = {seen.metric: seen for seen in change.coincidences}
    if "quota.throttled_s_per_s" in moved:
        return "raise the CPU quota that holds the rank back since then"
    others = moved.get("cpu.other_cores")
    if others is not None and others.after > others.before:
        return f"find the processes that keep {others.after:.2g} cores busy since then, and move them"
    gpu = moved.get("gpu.sm_clock_mhz")
    if gpu is not None and gpu.after < gpu.before:
        return f"find out why the clock of {gpu.scope.replace(':', ' ').upper()} fell then: temperature, power limit"
    generic = "look at what {who} does since step {step} that it did not do before"
    who = "the program" if change.rank is None else f"rank {change.rank}"
    return _ADVICE.get(change.phase, generic).format(step=change.step, who=who)


RULE = rule(
    __name__,
    "the job became slower",
    check,
    needs=("step.time_s",),
    thresholds={
        "ratio": Threshold(1.10, "smaller changes come and go on any machine"),
        "alike": Threshold(
            1.40,
            "forward and backward together grew by up to 1.35 in sound jobs on a shared machine, for half a minute",
        ),
        "steps": Threshold(40, "on both sides: fewer are a mood, not a level"),
        "seconds": Threshold(8, "a neighbour's burst is over by then"),
    },
)
