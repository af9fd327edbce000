"""Too many compute threads.

What it does: finds ranks that together split each operation among more threads than the job has cores.

Fires when: more than 1.25 intra-op threads for each allowed core, and they queue for it.

Why it is slow: an operation ends when its last thread does, and a thread without a core ends late. Meanwhile the other
threads spin on the cores it waits for, or sleep and must be woken. OpenMP knows the machine's cores, but not the other
ranks or a quota: each rank alone may look well sized. Measured on two cores: ResNet18 with 16 threads took 312 ms a
step instead of 68, in two ranks of two threads each 1160 ms instead of 208.

Evidence: the number of torch's compute threads, by rank, against the allowed cores (affinity and quota); how many of
them wait in the run queue on average, and how many of these are not the training thread; how long the training thread
waits. Loader workers compute with one thread each and are not counted.

Fix: `OMP_NUM_THREADS=n`, or `torch.set_num_threads(n)` where the script sets it, with n = allowed cores // ranks of
this machine.

Estimate: spinning threads lose at least seven tenths of the training thread's own wait for a core; a single rank whose
threads sleep loses at least four tenths. With several ranks whose threads sleep, another rank may compute during the
wait: the number of waiting threads shows how much of it is lost. Time that threads lose by waiting for each other
cannot be distinguished from work, hence the range.

False alarms: GPU jobs, whose threads sleep; as many threads as cores with a busy neighbour (CPU003); more ranks than
cores, each with one thread already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, THREADS_INTRA_OP, THREADS_WAITING
from rn50_advisor.advisor.model.measures.step_measures import STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import delay_evidence, mean, model_of
from rn50_advisor.rules.cpu.thread_fixes import thread_fix, thread_setting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the training thread's CPU time that remains at best once no thread waits for another. Measured
# on two cores with a small convolution net, an MLP and ResNet18: 0.34 to 0.73 where threads of several ranks spin, 0.57
# or more where one rank's threads sleep.
_COMPUTE_LEFT_SPINNING = 0.25
_COMPUTE_LEFT_SLEEPING = 0.5
# Waiting threads per core from which several sleeping ranks lose some of their wait, and as much as a single rank.
# Measured: nothing lost at 1.1 and 1.7, a fifth or more of the wait at 2.1, 0.45 to 0.9 of it at 2.3 to 5.3.
_QUEUED_PER_CORE = (1.75, 2.75)
# Measured for one rank whose threads sleep: with as many threads as cores it regained 0.5 to 2.9 times the wait.
_SLEEPING_GIVES_BACK = 0.4
# Measured where threads of several ranks spin: with one thread each they regained 0.8 to 1.9 times the wait.
_SPINNING_GIVES_BACK = 0.7


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    threads = a.of_host(a.by_rank(THREADS_INTRA_OP))
    waiting = sum(a.of_host(a.by_rank(THREADS_WAITING)).values())
    allowed, step, delays = a.value(CPU_ALLOWED_CORES), a.value(STEP_TIME_S), a.by_rank(STEP_RUN_DELAY_S)
    helping = waiting - sum(a.of_host(delays).values()) / step
    total, delay = sum(threads.values()), mean(delays)
    fewer = max(1, math.floor(allowed / a.ranks_of_host))
    crowded = total > t["threads"] * allowed and max(threads.values()) > fewer
    queued = waiting >= t["waiting"] * allowed or helping >= t["helping"] * allowed
    if not crowded or not queued or delay < t["delay"] * step:
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = _after(model, threads, delays, waiting)
    lost = step - worst
    each = f"{max(threads.values()):.0f} threads" + (" in each rank" if len(threads) > 1 else "")
    return Finding(
        rule=RULE.id,
        title=f"Too many compute threads: {total:.0f} on {allowed:g} cores",
        # severity of the minimum loss; 'low' if that is too small, because the wait alone is worth a finding
        severity=severity(lost / step) or "low",
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(),
        evidence=(
            Evidence.of(THREADS_INTRA_OP, total, t["threads"] * allowed, f"{each}, {allowed:g} cores allowed"),
            Evidence.of(
                THREADS_WAITING,
                waiting,
                t["waiting"] * allowed,
                f"{waiting:.1f} of the ranks' threads wait for a core on average",
            ),
            delay_evidence(delay, t["delay"] * step),
        ),
        fixes=(
            thread_fix(
                fewer,
                thread_setting(a, max(threads.values())),
                f"OMP_NUM_THREADS={fewer}, or torch.set_num_threads({fewer}) where the script sets it",
            ),
        ),
        saving=model.saving(best, worst, f"{counted(fewer, 'thread')} per rank, one core each"),
    )


def _after(
    model: StepModel, threads: Mapping[int, float], delays: Mapping[int, float], waiting: float
) -> tuple[float, float]:
    """(best, worst) step time if every thread has a core."""
    cores = model.allowed_cores or 1.0
    shares = {rank: min(0.95, delays.get(rank, 0.0) / max(model.step_s, 1e-9)) for rank in model.own}
    if len(model.own) > 1 and max(threads.values()) <= cores:
        # OpenMP lets threads spin if the machine has a core for each
        keeps, given_back = _COMPUTE_LEFT_SPINNING, _SPINNING_GIVES_BACK
    elif len(model.own) > 1:
        none, all_of_it = _QUEUED_PER_CORE
        like_one = min(1.0, max(0.0, (waiting / cores - none) / (all_of_it - none)))
        # waiting for the rank's own threads is a loss only while no other rank computes
        keeps = 1.0 - (1.0 - _COMPUTE_LEFT_SLEEPING) * like_one / model.ranks_of_host
        given_back = _SLEEPING_GIVES_BACK * like_one
    else:
        keeps, given_back = _COMPUTE_LEFT_SLEEPING, _SLEEPING_GIVES_BACK
    best = _scaled(model, {rank: keeps * (1.0 - share) for rank, share in shares.items()}, wire=True)
    return model.at_best(best), _scaled(
        model, {rank: 1.0 - given_back * share for rank, share in shares.items()}, wire=False
    )


def _scaled(model: StepModel, shares: Mapping[int, float], *, wire: bool) -> float:
    """Step time if each rank's work takes this share of today's; with `wire` its communication too, which also needs cores."""
    changes = {(rank, p): seconds * shares[rank] for rank, own in model.own.items() for p, seconds in own.items()}
    return model.step_if(changes, wire_s=model.wire_s * max(shares.values()) if wire else None)


RULE = rule(
    __name__,
    "Too many compute threads",
    check,
    needs=(STEP_TIME_S, STEP_RUN_DELAY_S, THREADS_INTRA_OP, THREADS_WAITING, CPU_ALLOWED_CORES),
    thresholds={
        "threads": Threshold(
            1.25, "for each allowed core: on two cores three threads took ResNet18 139 ms a step, two 75"
        ),
        "waiting": Threshold(0.25, "waiting threads per allowed core: threads that sleep, as on a GPU job, do no harm"),
        "helping": Threshold(
            0.10,
            "waiting helper threads per allowed core: competing workers delay the training thread, not its helpers",
        ),
        "delay": Threshold(0.05, "of the step: less is what any busy machine shows"),
    },
    triage_checks=("cpu.cores_allowed", "cpu.threads_per_core"),
)
