"""CPU steal time.

What it does: finds virtual machines whose physical CPUs ran other machines while the job wanted to run.

Fires when: steal is ≥ 5 % of the host's CPU time.

Why it is slow: the instance shares its physical cores. `steal` is time in which this machine was runnable and another
one ran.

Evidence: steal as a share of the host's CPU time while training.

Fix: another instance type (dedicated cores), another host, or a new instance.

Estimate: between half of the stolen share of the step, and the stolen share of the time in which threads wanted a core.

False alarms: none known; containers on bare metal read 0.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.host_measures import CPU_HOST_BUSY_CORES, CPU_HOST_CORES, CPU_STEAL_SHARE
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    stolen, step = a.value(CPU_STEAL_SHARE), a.value(STEP_TIME_S)
    level = severity(stolen)
    if stolen < t["steal"] or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title=f"CPU steal time: {100 * stolen:.0f} % of the CPU time",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=stolen * step,
        evidence=(
            Evidence.of(CPU_STEAL_SHARE, stolen, t["steal"], "of the host's CPU time while training", form="explains"),
        ),
        fixes=(Fix("move to an instance with dedicated cores, or to another host", "", None, "outside the code"),),
        saving=model.saving(step * (1 - _of_wanted(a, stolen)), step * (1 - 0.5 * stolen), "no steal time"),
    )


def _of_wanted(a: Analysis, stolen: float) -> float:
    """The stolen share of the wanted time: nothing is stolen from idle cores."""
    cores, busy = a.get(CPU_HOST_CORES), a.get(CPU_HOST_BUSY_CORES)
    return stolen * cores / (stolen * cores + busy) if cores and busy else stolen


RULE = rule(
    __name__,
    "CPU steal time",
    check,
    needs=(STEP_TIME_S, CPU_STEAL_SHARE),
    thresholds={"steal": Threshold(0.05, "severity 'medium' begins here; brief bursts stay below it over a run")},
    triage_checks=(CPU_STEAL_SHARE,),
)
