"""Too many compute threads.

What it does: finds ranks that split each operation among more threads, all ranks taken together, than the job has
cores for.

Why it is slow: an operation ends when the last of its threads does, and a thread without a core ends late. Meanwhile
the others spin on the cores it waits for, or sleep and must be woken. OpenMP knows the cores of the machine and
nothing of the other ranks or of a quota: each rank alone may look well sized. Measured on two cores: ResNet18 with 16
threads took 312 ms a step instead of 68, in two ranks of two threads each 1160 ms instead of 208.

Evidence: threads that torch computes with, by rank, against the cores allowed (affinity and quota); how many of them
stand ready without a core, and of these how many are not the training thread; how long that does. Loader workers compute
with one thread each and are not counted.

Fix: `OMP_NUM_THREADS=n`, or `torch.set_num_threads(n)` where the script sets it, with n = allowed cores // ranks of
this machine.

Estimate: seven tenths of the training thread's own wait for a core is the least that spinning teams lose, and four
tenths the least of one rank whose threads sleep. Of several ranks whose threads sleep the wait may be time in which
another rank computed: how much of it is lost follows from how many threads stand in line. What threads lose by waiting
for each other cannot be told from work, hence the range.

False alarms: GPU jobs, whose threads sleep; as many threads as cores beside a busy neighbour (CPU003); more ranks than
cores, each with one thread already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import delay_evidence, mean, model_of
from rn50_advisor.rules.compute.compute_cost import stalls_in_line
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the time in which the training thread had a core, what is left at best once no thread waits for another. Measured
# on two cores with a small convolution net, an MLP and ResNet18: 0.34 to 0.73 where threads of several ranks spin, 0.57
# at least where one rank's threads sleep.
_SPINNING_KEEPS = 0.25
_SLEEPING_KEEPS = 0.5
# Threads in line for each core from which on ranks that sleep lose some of their wait, and from which on what one does.
# Measured: nothing lost at 1.1 and 1.7, a fifth or more of the wait at 2.1, 0.45 to 0.9 of it at 2.3 to 5.3.
_IN_LINE = (1.75, 2.75)
# Measured of one rank whose threads sleep: as many threads as cores gave back 0.5 to 2.9 times the wait.
_SLEEPING_GIVES_BACK = 0.4
# Measured where threads of several ranks spin: one thread in each gave back 0.8 to 1.9 times the wait.
_SPINNING_GIVES_BACK = 0.7


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    threads = a.of_host(a.by_rank("threads.intra_op"))
    waiting = sum(a.of_host(a.by_rank("threads.waiting")).values())
    allowed, step, delays = a.value("cpu.allowed_cores"), a.value("step.time_s"), a.by_rank("step.run_delay_s")
    helping = waiting - sum(a.of_host(delays).values()) / step
    total, delay = sum(threads.values()), mean(delays)
    fewer = max(1, math.floor(allowed / a.ranks_of_host))
    crowded = total > t["threads"] * allowed and max(threads.values()) > fewer
    in_line = waiting >= t["waiting"] * allowed or helping >= t["helping"] * allowed
    if not crowded or not in_line or delay < t["delay"] * step:
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = _after(model, threads, delays, waiting)
    lost = step - worst
    each = f"{max(threads.values()):.0f} threads" + (" in each rank" if len(threads) > 1 else "")
    return Finding(
        rule=RULE.id,
        title=f"{total:.0f} compute threads share {allowed:g} cores",
        # the least that is lost; where even that is open, the wait alone is worth a word
        severity=severity(lost / step) or "low",
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(),
        evidence=(
            Evidence(
                "threads.intra_op", total, "threads", t["threads"] * allowed, f"{each}, {allowed:g} cores allowed"
            ),
            Evidence(
                "threads.waiting",
                waiting,
                "threads",
                t["waiting"] * allowed,
                f"{waiting:.1f} of the ranks' threads stand ready without a core, on average",
            ),
            delay_evidence(delay, t["delay"] * step),
        ),
        fixes=(
            Fix(
                f"OMP_NUM_THREADS={fewer}, or torch.set_num_threads({fewer}) where the script sets it",
                f"torch.set_num_threads({fewer})",
                None,
                "one line",
            ),
        ),
        saving=model.saving(best, worst, f"{counted(fewer, 'thread')} in each rank, a core for each"),
        explains=stalls_in_line(a),
    )


def _after(
    model: StepModel, threads: Mapping[int, float], delays: Mapping[int, float], waiting: float
) -> tuple[float, float]:
    """(best, worst) step time when every thread has a core."""
    cores = model.allowed_cores or 1.0
    shares = {rank: min(0.95, delays.get(rank, 0.0) / max(model.step_s, 1e-9)) for rank in model.own}
    if len(model.own) > 1 and max(threads.values()) <= cores:
        # OpenMP lets a team spin that the machine has cores for
        keeps, given_back = _SPINNING_KEEPS, _SPINNING_GIVES_BACK
    elif len(model.own) > 1:
        none, all_of_it = _IN_LINE
        like_one = min(1.0, max(0.0, (waiting / cores - none) / (all_of_it - none)))
        # what a team loses by waiting for its own threads is lost only as far as no other rank computes meanwhile
        keeps = 1.0 - (1.0 - _SLEEPING_KEEPS) * like_one / model.ranks_of_host
        given_back = _SLEEPING_GIVES_BACK * like_one
    else:
        keeps, given_back = _SLEEPING_KEEPS, _SLEEPING_GIVES_BACK
    best = _scaled(model, {rank: keeps * (1.0 - share) for rank, share in shares.items()}, wire=True)
    return model.at_best(best), _scaled(
        model, {rank: 1.0 - given_back * share for rank, share in shares.items()}, wire=False
    )


def _scaled(model: StepModel, shares: Mapping[int, float], *, wire: bool) -> float:
    """Step time when each rank's work takes this share of today's; with `wire` its communication too, which wants cores as well."""
    changes = {(rank, p): seconds * shares[rank] for rank, own in model.own.items() for p, seconds in own.items()}
    return model.step_if(changes, wire_s=model.wire_s * max(shares.values()) if wire else None)


RULE = rule(
    __name__,
    "too many compute threads",
    check,
    needs=("step.time_s", "step.run_delay_s", "threads.intra_op", "threads.waiting", "cpu.allowed_cores"),
    explains=("CPU003", "CMP007", "COM001", "COM002", "DAT001", "DAT003", "DAT004"),
    thresholds={
        "threads": Threshold(
            1.25, "for each allowed core: on two cores three threads took ResNet18 139 ms a step, two 75"
        ),
        "waiting": Threshold(
            0.25, "threads in line for each allowed core: threads that sleep, as on a GPU job, do no harm"
        ),
        "helping": Threshold(
            0.10, "of them, threads that help the training thread; workers that crowd make that one wait, and not these"
        ),
        "delay": Threshold(0.05, "of the step: less is what any busy machine shows"),
    },
)
