"""Too few compute threads.

What it does: finds ranks that train on the CPU and split each operation among far fewer threads than the job has cores.

Fires when: ≥ 2 cores are idle (one suffices if a single rank trains without loader workers), the ranks' compute threads could be doubled,
and the model profits from more threads: ≥ 0.25 ms of computing for each parameter tensor and for each operation, and batches that reuse
the weights they read.

Why it is slow: operations run one after the other, so only the threads within an operation use further cores. torchrun
sets `OMP_NUM_THREADS=1` whenever it starts several ranks and the variable is unset. Cluster profiles, container images
and numerical libraries do so too.

Evidence: torch's compute threads by rank, against the allowed cores (affinity and quota); idle cores; the computing of
a step for each parameter tensor.

Fix: `torch.set_num_threads(n)`, or `OMP_NUM_THREADS=n` before the launcher if the script does not set it, with n = allowed
cores // ranks of this machine, less the cores that other work keeps busy. Lines that set it, or `MKL_NUM_THREADS`, which
overrides it where torch computes with MKL, are named, and the call of an imported module or a library that sets it.

Estimate: computing is divided into a part that the threads share and a part that they do not (Amdahl). From one thread
to two, 19 models shared 60 to 97 % where each tensor took 2 ms or more, and 29 to 81 % from 0.25 ms on; the estimate
takes 50 to 97 and 25 to 85 %. More than two threads are extrapolated, so the range becomes wide.

False alarms: GPU jobs; ranks that fill the cores with one thread each; small models, which more threads make slower (0.95
times as fast at 0.05 ms for each tensor); batches of a few rows on large weights, which memory limits (0.75 times as fast
with four rows of 1024); cores that loader workers or neighbours use. If a neighbour comes later, as many threads as cores
can be slower than one: 0.3 times as fast in one run on two cores, of which others then took 0.9. So the
finding is low where a single core is idle, unless an import has set the number, which nobody chose for this job.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.comm_measures import COMM_JOINED
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_ALLOWED_CORES,
    CPU_HELPER_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_OTHER_CORES,
    THREADS_INTRA_OP,
)
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_OPERATIONS, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import compute_phases_s, step_computing, trained_by
from rn50_advisor.rules.cpu.thread_fixes import thread_fix, thread_setting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# (at worst, at best) the share of computing that threads divide among themselves, by seconds of computing for each parameter tensor.
_LARGE_TENSOR_S = 2e-3
_SHARED_OF_LARGE = (0.5, 0.97)
_SHARED_OF_SMALL = (0.25, 0.85)
# The weights cross the memory bus about six times a step: read in forward and backward, gradients written, both read and one written by the
# update. Measured with fewer rows: 7.9 GB/s was the bus's limit (0.75 times as fast with two threads). No limit at 0.1 GB/s or eight rows.
_BUS_CROSSINGS = 6
_FLOAT_BYTES = 4
_ROWS_MIN = 8
_BUS_GB_PER_S = 2.0
_CONFIDENCE_MAX = 0.7


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    threads, allowed, step = a.of_host(a.by_rank(THREADS_INTRA_OP)), a.value(CPU_ALLOWED_CORES), a.value(STEP_TIME_S)
    now = max(threads.values())
    idle, enough = allowed - a.value(CPU_HOST_BUSY_CORES), t["idle"]
    room = idle
    if _alone(a):
        # a thread that sleeps now and then leaves no core to another
        idle, enough = min(idle, allowed - now - _beside(a)), t["idle_alone"]
        room = math.floor(idle - enough) + 1.0
    more = min(math.floor(allowed / a.ranks_of_host), math.floor(now + room / a.ranks_of_host))
    if a.on_gpu or idle < enough or more < t["times"] * now:
        return Clear(RULE.id)
    optimizer, computing = trained_by(a), compute_phases_s(a)
    if optimizer is None or not optimizer.get("parameters"):
        return NotMeasured(RULE.id, ("optimizer",))
    # a layer that is called in a loop computes little at a time, and threads divide one operation
    parts = max([float(optimizer["parameters"]), *a.by_rank(STEP_OPERATIONS).values()])
    each, rows = computing / parts, a.get(STEP_SAMPLES)
    if each < t["tensor"]:
        return Clear(RULE.id)
    if (rows is None or rows < _ROWS_MIN) and _reads_weights(computing, optimizer["elements"]):
        return NotMeasured(RULE.id, (STEP_SAMPLES,)) if rows is None else Clear(RULE.id)
    worst, best = (
        step_computing(a, 1.0 - shared + shared * now / more)
        for shared in (_SHARED_OF_LARGE if each >= _LARGE_TENSOR_S else _SHARED_OF_SMALL)
    )
    level, setting = severity((step - worst) / step), thread_setting(a, now)
    if level is None:
        return Clear(RULE.id)
    by_import = setting is not None and setting["by_import"]
    if (
        idle < t["idle"] and not by_import
    ):  # a neighbour that takes the only idle core makes two threads slower than one
        level = "low"
    return Finding(
        rule=RULE.id,
        title=f"Too few compute threads: {now:.0f} of {more} in each rank"
        if len(threads) > 1
        else f"Too few compute threads: {now:.0f} of {more}",
        severity=level,
        confidence=confidence(a, cap=_CONFIDENCE_MAX),
        seconds_per_step=step - worst,
        evidence=(
            Evidence.of(
                THREADS_INTRA_OP,
                now,
                more / t["times"],
                f"in a rank; {allowed:g} cores allowed, {idle:.1f} of them idle",
            ),
            Evidence(
                "computing",
                computing,
                "s",
                t["tensor"] * parts,
                f"of a {duration(step)} step, {duration(each)} for each parameter tensor or operation",
                "continues",
            ),
        ),
        fixes=(
            thread_fix(
                more,
                setting,
                f"torch.set_num_threads({more}), or OMP_NUM_THREADS={more} for the job if the script does not set it",
            ),
        ),
        saving=model_of(a).saving(best, worst, f"{more} threads in each rank instead of {now:.0f}"),
    )


def _alone(a: Analysis) -> bool:
    """True if nothing of the job but one rank's computing needs a core: no other rank, and no worker."""
    return max(a.world_size, a.get(COMM_JOINED) or 0.0) <= 1 and not any(a.by_rank(LOADER_WORKERS).values())


def _beside(a: Analysis) -> float:
    """Cores that neither ranks nor loader workers keep busy."""
    return (a.get(CPU_OTHER_CORES) or 0.0) + (a.get(CPU_HELPER_CORES) or 0.0)


def _reads_weights(computing_s: float, elements: int) -> bool:
    """True if moving the weights between memory and cores alone would take much of the memory bandwidth during computing."""
    return _BUS_CROSSINGS * _FLOAT_BYTES * elements / max(computing_s, 1e-9) / 1e9 >= _BUS_GB_PER_S


RULE = rule(
    __name__,
    "Too few compute threads",
    check,
    needs=(STEP_TIME_S, THREADS_INTRA_OP, CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES),
    thresholds={
        "idle": Threshold(2.0, "idle cores: a single one serves the backward pass, the exchange and the launcher"),
        "idle_alone": Threshold(
            0.85,
            "idle cores beside a rank: two threads were 1.7 and 1.9 times as fast with 0.01 other cores busy, 1.04 with 0.3 (one pair)",
        ),
        "times": Threshold(2.0, "times the present threads: with fewer, the gain is below the estimate's uncertainty"),
        "tensor": Threshold(2.5e-4, "seconds of computing for each parameter tensor: two threads lost time at 50 us"),
    },
)
