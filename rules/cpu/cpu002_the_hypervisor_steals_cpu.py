"""The hypervisor steals CPU.

What it does: finds virtual machines whose CPUs were given to somebody else while the job wanted to run.

Why it is slow: the instance shares its physical cores. What `steal` shows was runnable time here and run time elsewhere.

Evidence: steal as a share of the host's CPU time while training.

Fix: another instance type (dedicated cores), another host, or hand the instance back.

Estimate: from half of the stolen share of the step to the stolen share of the time for which cores were wanted.

False alarms: none known; containers on bare metal read 0.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    stolen, step = a.value("cpu.steal_share"), a.value("step.time_s")
    level = severity(stolen)
    if stolen < t["steal"] or level is None:
        return Clear(RULE.id)
    model = model_of(a)
    return Finding(
        rule=RULE.id,
        title=f"The hypervisor takes {100 * stolen:.0f} % of the CPU time",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=stolen * step,
        evidence=(Evidence("cpu.steal_share", stolen, "", t["steal"], "of the host's CPU time while training"),),
        fixes=(Fix("move to an instance with dedicated cores, or to another host", "", None, "outside the code"),),
        saving=model.saving(step * (1 - _of_wanted(a, stolen)), step * (1 - 0.5 * stolen), "no time stolen"),
    )


def _of_wanted(a: Analysis, stolen: float) -> float:
    """The stolen share of the time that somebody wanted: cores that idle were not stolen from."""
    cores, busy = a.get("cpu.host_cores"), a.get("cpu.host_busy_cores")
    return stolen * cores / (stolen * cores + busy) if cores and busy else stolen


RULE = rule(
    __name__,
    "the hypervisor steals CPU",
    check,
    needs=("step.time_s", "cpu.steal_share"),
    explains=("CPU003", "DAT001", "DAT004", "COM001", "COM002"),
    thresholds={"steal": Threshold(0.05, "severity 'medium' begins here; brief bursts stay below it over a run")},
)
