"""CPU contention with other processes.

What it does: finds training threads that were ready to run but got no core, while cores were busy with processes
outside the job, or with processes that the job started besides its ranks and their workers.

Fires when: training threads wait ≥ 10 % of the step for a core that other processes keep busy, the job's own or not.

Why it is slow: the kernel shares the cores; time that the neighbours compute is lost to this job.

Evidence: run-queue delay of the training thread as a share of the step; cores busy with processes outside this job, and
with those of the job that neither train nor load data, by command.

Fix: stop or move the neighbours, or pin the job to dedicated cores; start the job's additional processes elsewhere.

Estimate: the step without the neighbours' part of the training thread's delay, which is their share of the busy cores;
at worst half of that gain.

False alarms: the job's own workers (DAT005) and threads (CPU005) also compete for cores, and are not counted here. Of
the cores busy outside the job, only those count that the job may use: cores that its affinity or its quota leaves to
others belong to them. A quota also causes delay (CPU001 explains it).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_ALLOWED_CORES,
    CPU_HELPER_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_JOB_CORES,
    CPU_OTHER_CORES,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, cores_of, delay_evidence, model_of, without_delay
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_OWN_PROCESSES_SHARE = (
    0.5  # of the cores taken: from there on the title and the advice are about the job's own extra processes
)
_COMMANDS_NAMED = 2
_COMMAND_CHARS_MAX = 80


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    delays, step = a.by_rank(STEP_RUN_DELAY_S), a.value(STEP_TIME_S)
    cores, allowed = cores_of(a), a.value(CPU_ALLOWED_CORES)
    helpers = a.get(CPU_HELPER_CORES) or 0.0
    taken = (cores.taken or 0.0) + helpers
    ranks = tuple(rank for rank, delay in delays.items() if delay >= t["delay"] * step)
    everywhere = len(ranks) == len(delays)
    delay = common(delays) if everywhere else max(delays.values())
    model = model_of(a)
    # the rest of the delay is contention within the job
    taken_share = taken / max(taken + cores.job - helpers, 1e-9)
    after = model.step_if(without_delay(model, {rank: min(delays[rank], step * taken_share) for rank in ranks}))
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
            Evidence.of(
                CPU_OTHER_CORES,
                taken - helpers,
                None if helpers else t["other_cores"] * allowed,
                f"{taken - helpers:.1f} of {allowed:g} allowed cores are busy outside this job",
            ),
        ),
        fixes=(_fix(taken, helpers),),
        saving=model.saving(model.at_best(after), 0.5 * (step + after), "no CPU contention from other processes"),
    )


def _title(taken: float, helpers: float) -> str:
    if helpers < _OWN_PROCESSES_SHARE * taken:
        return f"CPU contention: other processes keep {taken:.1f} cores busy"
    return f"CPU contention: the job's own helper processes keep {taken:.1f} cores busy"


def _helpers(a: Analysis) -> tuple[Evidence, ...]:
    named = sorted(a.helpers.items(), key=lambda named: -named[1])
    return tuple(
        Evidence.of(
            CPU_HELPER_CORES,
            cores,
            note=f"a process of the job that is neither rank nor worker: {command[:_COMMAND_CHARS_MAX]}",
            form="explains",
        )
        for command, cores in named[:_COMMANDS_NAMED]
    )


def _fix(taken: float, helpers: float) -> Fix:
    if helpers < _OWN_PROCESSES_SHARE * taken:
        words = "stop or move the other processes, or pin the job to dedicated cores (taskset, cpuset)"
        return Fix(words, "", None, "outside the code")
    return Fix("run these processes elsewhere, with fewer threads, or outside training", "", None)


RULE = rule(
    __name__,
    "CPU contention with other processes",
    check,
    needs=(
        STEP_TIME_S,
        STEP_RUN_DELAY_S,
        CPU_OTHER_CORES,
        CPU_ALLOWED_CORES,
        CPU_JOB_CORES,
        CPU_HOST_BUSY_CORES,
    ),
    thresholds={
        "delay": Threshold(0.10, "a tenth of the step; short waits for a core are ordinary"),
        "other_cores": Threshold(0.25, "a quarter of the allowed cores: less is the system's own housekeeping"),
        "busy": Threshold(
            0.85, "of the cores within reach: if any were idle, the scheduler would have moved the thread"
        ),
    },
    triage_checks=("cpu.others_cores", "decode.images_per_core_s"),
)
