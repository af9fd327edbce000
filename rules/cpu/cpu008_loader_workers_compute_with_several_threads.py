"""Multi-threaded loader workers.

What it does: finds loader workers in which threads other than the one that makes batches take a good part of the CPU
time, with too few cores for all of them.

Fires when: threads of workers other than those that make batches keep ≥ 10 % of the allowed cores busy and take ≥ 25 % of the workers'
CPU time, while ≥ 15 % of batch preparation is waiting for a core.

Why it is slow: a worker is meant to keep one core busy, and there are as many workers as cores. torch computes with one
thread in them, but NumPy's BLAS and OpenCV start one for each core of the machine. A matrix product ends when its last
thread does, and while that thread has no core the others spin on the cores that it and the training wait for. Measured
on two cores, with one or two workers of two threads: with one thread in each, 45 to 95 % of their CPU time disappeared,
and a step of 80 ms took 28.

Evidence: CPU time of the worker processes beyond that of the threads that make batches, as cores and as a share; how
long these threads wait for a core; the input wait, or the training thread's wait for a core, as shares of the step.

Fix: one thread in each worker: `cv2.setNumThreads(0)` in a `worker_init_fn`; for NumPy
`threadpoolctl.threadpool_limits(1)` there, or `OPENBLAS_NUM_THREADS=1` (`MKL_NUM_THREADS=1`) for the whole job.

Estimate: the thread that makes a batch waits for a core for as long as its helper threads lack one. The lost part of
the workers' CPU time follows from that wait: 1.3 to 1.7 times its share, as measured. The input wait and the wait for
cores shrink by the same part; no batch takes less than its remaining work.

False alarms: idle cores: then such threads shorten each batch, and nothing waits for a core. Threads of the ranks
themselves belong to CPU005.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import EnvironmentChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_DELAY_SHARE,
    FETCH_WALL_S,
    LOADER_HELPER_CORES,
    LOADER_HELPER_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import (
    common,
    cpu_of_workers_s,
    crowding_evidence,
    held_up_s,
    mean,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, step_with_less_work
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Lost CPU time of workers per share of batch making spent waiting for a core. Seven jobs on two cores: 1.3 to 1.7.
_LOST_PER_DELAY = (1.7, 1.25)
_ONE_THREAD_EXAMPLE = (
    "def one_thread(worker): cv2.setNumThreads(0); threadpoolctl.threadpool_limits(1)\n"
    "DataLoader(..., worker_init_fn=one_thread)"
)
_NUMPY_ALONE = EnvironmentChange((("OPENBLAS_NUM_THREADS", "1"), ("MKL_NUM_THREADS", "1")))


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    helping, step = a.by_rank(LOADER_HELPER_CORES), a.value(STEP_TIME_S)
    cores, share = sum(a.of_host(helping).values()), common(a.by_rank(LOADER_HELPER_SHARE))
    waits, crowd, delay = input_waits(a), crowd_s(a, t["workers_share"]), mean(a.by_rank(FETCH_DELAY_SHARE))
    wait = common(waits)
    waited, crowded = wait >= t["input_wait"] * step, crowd >= t["crowding"] * step
    many = cores >= t["cores"] * a.value(CPU_ALLOWED_CORES) and share >= t["share"] and delay >= t["delay"]
    if not many or not (waited or crowded):
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = (_with_one_thread(a, min(1.0, lost * delay)) for lost in _LOST_PER_DELAY)
    best = model.at_best(best)
    lost = step - 0.5 * (best + worst)
    return Finding(
        rule=RULE.id,
        title="Multi-threaded loader workers on too few cores",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(
                LOADER_HELPER_CORES,
                cores,
                t["cores"] * a.value(CPU_ALLOWED_CORES),
                "busy on average",
                form="explains",
            ),
            Evidence.of(LOADER_HELPER_SHARE, share, t["share"], "of the workers' CPU time", form="explains"),
            Evidence.of(
                FETCH_DELAY_SHARE, delay, t["delay"], "of batch preparation is waiting for a core", form="continues"
            ),
            *((input_evidence(a, wait, t["input_wait"]),) if waited else ()),
            *((crowding_evidence(step, crowd, t["crowding"]),) if crowded else ()),
        ),
        fixes=(
            Fix(
                "limit OpenCV or NumPy to one thread in the workers",
                _ONE_THREAD_EXAMPLE,
                where_of(training_loader(a, waits)),
                "small change",
            ),
            Fix.of("or limit NumPy to one thread in the whole job", _NUMPY_ALONE, None, "one line"),
        ),
        saving=model.saving(best, worst, "one thread per worker, estimated from their wait for a core"),
    )


def _with_one_thread(a: Analysis, lost: float) -> float:
    """Step time without this share of the workers' CPU time, which was lost by threads waiting for one another."""
    work_s, workers = cpu_of_workers_s(a), sum(a.of_host(a.by_rank(LOADER_WORKERS)).values())
    least_s = (1.0 - lost) * work_s / max(workers, 1.0)
    floor_s = min(least_s, a.value(STEP_TIME_S))
    return step_with_less_work(a, held_up_s(a), lost, lost * work_s, floor_s=floor_s)


RULE = rule(
    __name__,
    "Multi-threaded loader workers",
    check,
    needs=(
        STEP_TIME_S,
        STEP_INPUT_WAIT_S,
        LOADER_WORKERS,
        LOADER_HELPER_CORES,
        LOADER_HELPER_SHARE,
        FETCH_WALL_S,
        FETCH_DELAY_SHARE,
        CPU_ALLOWED_CORES,
        CPU_JOB_CORES,
    ),
    thresholds={
        "cores": Threshold(
            0.10,
            "of the allowed cores: without such threads the transfer took up to 5 % of two, but 13 % with batches of 3 ms",
        ),
        "share": Threshold(
            0.25,
            "of the workers' CPU time: up to 0.04 in workers that keep one core busy, from 0.52 on with such threads",
        ),
        "delay": Threshold(0.15, "as for DAT005: in sound jobs with a worker beside each core it stays below a tenth"),
        **CROWDED,
    },
)
