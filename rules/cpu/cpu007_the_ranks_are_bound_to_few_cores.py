"""CPU affinity with too few cores.

What it does: finds ranks, or their loader workers, that wait for the cores to which they are bound while other cores of
the job are idle.

Fires when: ranks queue for a core for ≥ 10 % of the step while half of another core, which no rank may use, is idle.

Why it is slow: a thread bound to a core waits for it, even if others are free. Launchers bind each task to one core, or
all of them to the same (`--cpu-bind`, `--bind-to core`), an OpenMP runtime binds the main thread when a library loads it
(`OMP_PROC_BIND`, `GOMP_CPU_AFFINITY`, `KMP_AFFINITY`), some libraries do so when they are imported, and loader workers
inherit the binding.

Evidence: the cores that any rank may run on, against those that the job may use; the import that took the others, or
between which two lines they were lost; how long the training thread, or the process that makes a batch, waits for a core;
how many cores are idle.

Fix: remove the binding, or bind each rank to cores of its own, as many as its threads and workers need. If an import binds
it, the finding names its line: give the cores back after it, or unset the variable. If the job's own code binds it
(`os.sched_setaffinity`, `cpu_affinity` of psutil) or sets the variable, the finding names that statement.

Estimate: at best the wait for a core disappears, at worst three quarters of it, because threads that run at the same
time share caches and memory bandwidth. It never exceeds what the idle cores can take. (Two ranks bound to one of two
cores: steps of 89 ms, 41 of them waiting; 44 ms without the binding.)

False alarms: ranks bound to cores of their own, which do not wait; a container without further cores: cores that are
not allowed are not free.
"""

from __future__ import annotations

import posixpath

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import Expression, Invocation, Setup
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_AFFINITY_CORES,
    CPU_ALLOWED_CORES,
    CPU_GIVEN_CORES,
    CPU_HOST_BUSY_CORES,
)
from rn50_advisor.advisor.model.measures.input_measures import FETCH_DELAY_SHARE
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted, numbers
from rn50_advisor.probes.documents.code_places import CodePlace
from rn50_advisor.probes.documents.rank_documents import AffinityLoss
from rn50_advisor.rules.analysis_reading import common, delay_evidence, mean, model_of, without_delay
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN_SHARE_MIN = 0.75  # of the predicted gain
# What a script that binds itself would call instead.
_ALL_CORES = Setup((Invocation("os.sched_setaffinity", (0, Expression("range(os.cpu_count())"))),))
_NO_BINDING = {"false", "none", "disabled"}  # among the words of OpenMP's variables


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    step, model, bound = a.value(STEP_TIME_S), model_of(a), a.value(CPU_AFFINITY_CORES)
    # a job that binds itself before its ranks start has lost the other cores, but its parent process had them
    usable = max(a.value(CPU_ALLOWED_CORES), a.get(CPU_GIVEN_CORES) or 0.0)
    free = usable - a.value(CPU_HOST_BUSY_CORES)
    delays, waits = a.by_rank(STEP_RUN_DELAY_S), a.by_rank(STEP_INPUT_WAIT_S)
    if usable - bound < t["beyond"] or free < t["free"]:
        return Clear(RULE.id)
    delay, in_fetch = common(delays), mean(a.by_rank(FETCH_DELAY_SHARE)) if a.has(FETCH_DELAY_SHARE) else 0.0
    # faster batches shorten the input wait, by at most the whole wait
    starved = common(waits) if in_fetch >= t["in_fetch"] else 0.0
    spared = {rank: in_fetch * wait if starved else 0.0 for rank, wait in waits.items()}
    lost = delay + common(spared)
    level = severity(lost / step)
    if lost < t["delay"] * step or level is None:
        return Clear(RULE.id)
    changes = dict(without_delay(model, delays))
    changes |= {(rank, "input_wait"): model.own[rank]["input_wait"] - s for rank, s in spared.items() if s > 0}
    after = model.step_if(changes)
    # fewer cores may be idle than threads wait
    sure = _GAIN_SHARE_MIN * min(1.0, free * step / max(sum(delays.values()) + sum(spared.values()), 1e-9))
    loss = _loss(a)
    return Finding(
        rule=RULE.id,
        title=f"CPU affinity: ranks bound to {counted(round(bound), 'core')} while {free:.1f} others are idle",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(CPU_AFFINITY_CORES, bound, note=_bound_cores(a, usable)),
            *((Evidence.of(CPU_AFFINITY_CORES, loss["before"], note=_until(loss), form="explains"),) if loss else ()),
            delay_evidence(delay, t["delay"] * step),
            *(
                (
                    Evidence.of(
                        FETCH_DELAY_SHARE,
                        in_fetch,
                        t["in_fetch"],
                        "of batch preparation is waiting for a core",
                        form="continues",
                    ),
                )
                if starved
                else ()
            ),
        ),
        fixes=_fixes(a, loss, usable),
        saving=model.saving(model.at_best(after), step - sure * (step - after), "no thread waits for a core"),
    )


def _bound_cores(a: Analysis, usable: float) -> str:
    ranks = a.rank_facts.values()
    cores = {core for facts in ranks for core in facts.get("cpus_allowed") or ()}
    which = f"core {numbers(sorted(cores))}" if cores else "these"
    started_so = all(facts.get("cpus_at_start") == len(facts.get("cpus_allowed") or ()) for facts in ranks)
    since = ", already when Python started" if cores and started_so else ""
    return f"{which} for all ranks together{since}, of {usable:g} that the job may use"


def _loss(a: Analysis) -> AffinityLoss | None:
    """The largest loss of cores of a rank that has not been given any of them back."""
    lost = [
        facts["cpus_lost"]
        for facts in a.rank_facts.values()
        if "cpus_lost" in facts and len(facts.get("cpus_allowed") or ()) <= facts["cpus_lost"]["after"]
    ]
    return max(lost, key=lambda loss: loss["before"] - loss["after"], default=None)


def _until(loss: AffinityLoss) -> str:
    at, seen, module = _line(loss), _line(loss["seen"]), loss["module"]
    if module:
        when = f"the import of {module}{at and f' at {at}'}"
        if not loss["by_import"]:
            when += f", or a call between it and {seen or 'the first step'}"
    else:
        when = f"a call before {seen or 'the first step'}"
    return f"until {when}, then {loss['after']}"


def _line(place: CodePlace) -> str:
    return f"{posixpath.basename(place['file'])}:{place['line']}" if place.get("file") else ""


def _fixes(a: Analysis, loss: AffinityLoss | None, usable: float) -> tuple[Fix, ...]:
    binding = _binding_variables(a)
    unset = ", ".join(f"{name}={value}" for name, value in binding.items())
    had_all = loss is not None and loss["before"] >= usable
    own = next((name for name in binding if name in a.binding_lines), None)
    if loss is not None and own is not None:  # nothing that the job sets has bound it before Python started
        return (_without_binding(a.binding_lines[own], f"{own}={binding[own]}", had_all=had_all),)
    anywhere = Fix(
        "remove the binding, or bind each rank to its own cores",
        (f"unset {unset}; " if unset else "")
        + "srun --cpu-bind=none, or more --cpus-per-task; mpirun --bind-to none; no taskset, numactl -C, OMP_PROC_BIND",
        None,
        "outside the code",
        call=_ALL_CORES,
    )
    if loss is None or not loss["module"] or not loss.get("file"):
        return (anywhere,)
    # a rank that had cores of its own before keeps these
    back = f"{_ALL_CORES}" if had_all else "os.sched_setaffinity(0, before)"
    kept = "" if had_all else ", with before = os.sched_getaffinity(0) ahead of it"
    after_it = Fix(
        f"restore the affinity after the import of {loss['module']}",
        f"{back} right after it{kept}{unset and f'; or unset {unset}'}",
        Where(loss["file"], loss["line"]),
        "one line",
        call=_ALL_CORES if had_all else None,
    )
    return (after_it,) if loss["by_import"] else (anywhere, after_it)


def _without_binding(line: CodePlace, unset: str, *, had_all: bool) -> Fix:
    return Fix(
        f"leave out {unset}",
        "OpenMP binds the thread that loads it to one core, and whatever that thread starts, loader workers too, gets the same core",
        Where(line["file"], line["line"]),
        "one line",
        call=_ALL_CORES if had_all else None,
    )


def _binding_variables(a: Analysis) -> dict[str, str]:
    """OpenMP's variables that may bind the ranks, with their values."""
    found = {n: value for facts in a.rank_facts.values() for n, value in facts.get("binding_variables", {}).items()}
    binding = {name: value for name, value in found.items() if not _NO_BINDING & set(value.lower().split(","))}
    if "OMP_PROC_BIND" in found and "OMP_PROC_BIND" not in binding:
        binding.pop("OMP_PLACES", None)
    return binding


RULE = rule(
    __name__,
    "CPU affinity with too few cores",
    check,
    needs=(
        STEP_TIME_S,
        STEP_RUN_DELAY_S,
        STEP_INPUT_WAIT_S,
        CPU_AFFINITY_CORES,
        CPU_ALLOWED_CORES,
        CPU_HOST_BUSY_CORES,
    ),
    thresholds={
        "beyond": Threshold(1.0, "cores that the job may use and no rank may"),
        "free": Threshold(0.5, "idle cores: half of one is enough for another thread"),
        "in_fetch": Threshold(0.20, "of making a batch; workers of any busy host show less"),
        "delay": Threshold(0.10, "a tenth of the step; short waits for a core are ordinary"),
    },
)
