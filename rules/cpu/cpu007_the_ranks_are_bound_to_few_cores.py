"""The ranks are bound to few cores.

What it does: finds ranks, or their loader workers, that stand in line for the cores to which they are bound while others of the job's cores
idle.

Why it is slow: who is bound to a core waits for it, whatever is free elsewhere. Launchers bind each task to one core, or all of them to the
same (`--cpu-bind`, `--bind-to core`), OpenMP binds the main thread (`OMP_PROC_BIND`), and loader workers inherit it.

Evidence: the cores that any rank may run on, against those that the job may use; how long the training thread, or who makes a batch, waits
for one; how many idle.

Fix: lift the binding, or bind each rank to cores of its own, as many as its threads and workers need.

Estimate: waiting for a core goes altogether at best, by three quarters at worst, and by no more than idles: threads that run at once share
caches and memory. (Two ranks bound to one of two cores: steps of 89 ms, 41 of them in line; 44 ms without the binding.)

False alarms: ranks bound to cores of their own, which do not wait; a container that has no more cores: they are not allowed, and not free.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.wording.quantities import counted, numbers
from rn50_advisor.rules.analysis_reading import common, delay_evidence, mean, model_of, without_delay
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SURE = 0.75


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    step, model, bound = a.value("step.time_s"), model_of(a), a.value("cpu.affinity_cores")
    # a job that binds itself before its ranks start is allowed no more; who started it was
    usable = max(a.value("cpu.allowed_cores"), a.get("cpu.given_cores") or 0.0)
    free = usable - a.value("cpu.host_busy_cores")
    delays, waits = a.by_rank("step.run_delay_s"), a.by_rank("step.input_wait_s")
    if usable - bound < t["beyond"] or free < t["free"]:
        return Clear(RULE.id)
    delay, in_fetch = common(delays), mean(a.by_rank("fetch.delay_share")) if a.has("fetch.delay_share") else 0.0
    # a batch that is made sooner is waited for less; it is awaited no longer than the wait takes
    starved = common(waits) if in_fetch >= t["in_fetch"] else 0.0
    spared = {rank: in_fetch * wait if starved else 0.0 for rank, wait in waits.items()}
    lost = delay + common(spared)
    level = severity(lost / step)
    if lost < t["delay"] * step or level is None:
        return Clear(RULE.id)
    changes = dict(without_delay(model, delays))
    changes |= {(rank, "input_wait"): model.own[rank]["input_wait"] - s for rank, s in spared.items() if s > 0}
    after = model.step_if(changes)
    # what idles may be less than what stands in line
    sure = _SURE * min(1.0, free * step / max(sum(delays.values()) + sum(spared.values()), 1e-9))
    return Finding(
        rule=RULE.id,
        title=f"The ranks are bound to {counted(round(bound), 'core')} while {free:.1f} others idle",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(
            Evidence("cpu.affinity_cores", bound, "cores", None, _where(a, usable)),
            delay_evidence(delay, t["delay"] * step),
            *(
                (Evidence("fetch.delay_share", in_fetch, "", t["in_fetch"], "of making a batch is waiting for a core"),)
                if starved
                else ()
            ),
        ),
        fixes=(
            Fix(
                "lift the binding, or give each rank cores of its own",
                "srun --cpu-bind=none, or more --cpus-per-task; mpirun --bind-to none; no taskset, numactl -C, OMP_PROC_BIND",
                None,
                "outside the code",
            ),
        ),
        saving=model.saving(model.at_best(after), step - sure * (step - after), "a core for each that waits for one"),
    )


def _where(a: Analysis, usable: float) -> str:
    cores = {core for told in a.facts.values() if isinstance(told, dict) for core in told.get("cpus_allowed") or ()}
    which = f"core {numbers(sorted(cores))}" if cores else "so many"
    return f"{which}, all ranks together, of {usable:g} that the job may use"


RULE = rule(
    __name__,
    "the ranks are bound to few cores",
    check,
    needs=(
        "step.time_s",
        "step.run_delay_s",
        "step.input_wait_s",
        "cpu.affinity_cores",
        "cpu.allowed_cores",
        "cpu.host_busy_cores",
    ),
    explains=("CPU003", "CPU005", "DAT001", "DAT003", "DAT004", "DAT005", "CMP007", "COM001", "COM002"),
    thresholds={
        "beyond": Threshold(1.0, "cores that the job may use and no rank may"),
        "free": Threshold(0.5, "cores that idle: half a one carries another thread"),
        "in_fetch": Threshold(0.20, "of making a batch; less is what workers of a busy host show"),
        "delay": Threshold(0.10, "a tenth of the step; short waits for a core are ordinary"),
    },
)
