"""Other processes take the CPUs.

What it does: finds training threads that were ready to run and got no core while processes of somebody else kept cores busy, or such as the
job has started beside its ranks and their workers.

Why it is slow: the kernel shares the cores; whatever the neighbours compute, this job does not.

Evidence: run-queue delay of the training thread as a share of the step; cores busy with processes outside this job, and with those of the
job that neither train nor load, by command.

Fix: stop or move the neighbours, or pin the job to cores of its own; start what the job computes besides elsewhere.

Estimate: the delay of the training thread given back.

False alarms: the job's own workers (DAT005) and threads (CPU005) crowd it too, and do not count here; of the cores busy outside the job
those count that it may use: cores that its affinity or its quota leaves to others are theirs. A quota delays as well (CPU001 explains it).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, cores_of, delay_evidence, model_of, without_delay
from rn50_advisor.rules.compute.compute_cost import stalls_in_line
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_MOSTLY = 0.5  # of the cores taken: there the title and the advice are about those
_NAMED = 2
_COMMAND = 80  # characters


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    delays, step = a.by_rank("step.run_delay_s"), a.value("step.time_s")
    cores, allowed = cores_of(a), a.value("cpu.allowed_cores")
    helpers = a.get("cpu.helper_cores") or 0.0
    taken = (cores.taken or 0.0) + helpers
    ranks = tuple(rank for rank, delay in delays.items() if delay >= t["delay"] * step)
    everywhere = len(ranks) == len(delays)
    delay = common(delays) if everywhere else max(delays.values())
    model = model_of(a)
    # the rest of the delay is the job's own crowding
    theirs = taken / max(taken + cores.job - helpers, 1e-9)
    after = model.step_if(without_delay(model, {rank: min(delays[rank], step * theirs) for rank in ranks}))
    lost = step - after
    level = severity(lost / step)
    full = min(cores.busy, cores.reach) >= t["busy"] * cores.reach
    if delay < t["delay"] * step or taken < t["other_cores"] * allowed or not full or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title=_title(taken, helpers),
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else ranks),
        evidence=(
            delay_evidence(delay, t["delay"] * step),
            *_helpers(a),
            Evidence(
                "cpu.other_cores",
                taken - helpers,
                "cores",
                None if helpers else t["other_cores"] * allowed,
                f"{taken - helpers:.1f} of {allowed:g} allowed cores are busy outside this job",
            ),
        ),
        fixes=(_fix(taken, helpers),),
        saving=model.saving(model.at_best(after), 0.5 * (step + after), "the cores to itself"),
        # what slows all ranks alike makes none of them a straggler
        explains=(*(() if everywhere else ("CMP007", "COM002")), *stalls_in_line(a)),
    )


def _title(taken: float, helpers: float) -> str:
    if helpers < _MOSTLY * taken:
        return f"Other processes keep {taken:.1f} cores busy that the job needs"
    return f"Processes that the job started itself keep {taken:.1f} cores busy that training needs"


def _helpers(a: Analysis) -> tuple[Evidence, ...]:
    named = sorted(a.helpers.items(), key=lambda named: -named[1])
    return tuple(
        Evidence(
            "cpu.helper_cores", cores, "cores", None, f"the job's own, no rank and no worker: {command[:_COMMAND]}"
        )
        for command, cores in named[:_NAMED]
    )


def _fix(taken: float, helpers: float) -> Fix:
    if helpers < _MOSTLY * taken:
        words = "stop or move the other processes, or pin the job to cores of its own (taskset, cpuset)"
        return Fix(words, "", None, "outside the code")
    return Fix(
        "run what the job starts beside training elsewhere, with fewer threads, or before and after it", "", None
    )


RULE = rule(
    __name__,
    "other processes take the CPUs",
    check,
    needs=(
        "step.time_s",
        "step.run_delay_s",
        "cpu.other_cores",
        "cpu.allowed_cores",
        "cpu.job_cores",
        "cpu.host_busy_cores",
    ),
    explains=("DAT001", "DAT004", "COM001"),
    thresholds={
        "delay": Threshold(0.10, "a tenth of the step; short waits for a core are ordinary"),
        "other_cores": Threshold(0.25, "a quarter of the allowed cores: less is the system's own housekeeping"),
        "busy": Threshold(
            0.85, "of the cores within reach: with idle ones left the scheduler would have moved the thread"
        ),
    },
)
