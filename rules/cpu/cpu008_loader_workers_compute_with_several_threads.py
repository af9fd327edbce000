"""Loader workers compute with several threads.

What it does: finds loader workers in which threads beside the one that makes batches take a good part of the CPU time, and too few cores
for all of them.

Why it is slow: a worker is meant to keep one core busy, and there are as many workers as cores. torch computes with one thread in them,
but NumPy's BLAS and OpenCV start one for each core of the machine. A product of matrices ends when the last of its threads does, and while
that one has no core the others spin on the cores that it and the training wait for. Measured on two cores, with one or two workers of two
threads: of their CPU time 45 to 95 % was gone with one thread in each, and a step of 80 ms took 28.

Evidence: CPU time of the workers' processes beyond that of the threads that make batches, as cores and as a share; how long these stand
in line for a core; waiting for input, or of the training thread for a core, as shares of the step.

Fix: one thread in each worker: `cv2.setNumThreads(0)` in a `worker_init_fn`; for NumPy `threadpoolctl.threadpool_limits(1)` there, or
`OPENBLAS_NUM_THREADS=1` (`MKL_NUM_THREADS=1`) for the whole job.

Estimate: who makes a batch stands in line for as long as its team lacks a core, so the part of the workers' CPU time that is lost follows
from that: measured 1.3 to 1.7 times its share. Gone with it is as much of the wait for input and for cores; no batch takes less than what
is left of its work.

False alarms: cores that idle: there such threads shorten each batch, and nobody stands in line. Threads of the ranks themselves: CPU005.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import (
    common,
    cpu_of_workers_s,
    crowding_evidence,
    delay_of_own_making,
    mean,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, step_with_less_work
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of the workers' CPU time, for each share of making a batch that is spent in line. Seven jobs on two cores: 1.3 to 1.7.
_LOST = (1.7, 1.25)
_CHANGE = (
    "def one_thread(worker): cv2.setNumThreads(0); threadpoolctl.threadpool_limits(1)\n"
    "DataLoader(..., worker_init_fn=one_thread)"
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    helping, step = a.by_rank("loader.helper_cores"), a.value("step.time_s")
    cores, share = sum(a.of_host(helping).values()), common(a.by_rank("loader.helper_share"))
    waits, crowd, delay = input_waits(a), crowd_s(a, t["workers_share"]), mean(a.by_rank("fetch.delay_share"))
    wait = common(waits)
    waited, crowded = wait >= t["input_wait"] * step, crowd >= t["crowding"] * step
    many = cores >= t["cores"] * a.value("cpu.allowed_cores") and share >= t["share"] and delay >= t["delay"]
    if not many or not (waited or crowded):
        return Clear(RULE.id)
    model = model_of(a)
    best, worst = (_with_one_thread(a, min(1.0, lost * delay)) for lost in _LOST)
    best = model.at_best(best)
    lost = step - 0.5 * (best + worst)
    return Finding(
        rule=RULE.id,
        title="Loader workers compute with several threads each, and there are too few cores for them",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            Evidence(
                "loader.helper_cores",
                cores,
                "cores",
                t["cores"] * a.value("cpu.allowed_cores"),
                "kept busy by threads of the workers beside those that make batches",
            ),
            Evidence("loader.helper_share", share, "", t["share"], "of the workers' CPU time"),
            Evidence("fetch.delay_share", delay, "", t["delay"], "of making a batch is waiting for a core"),
            *((input_evidence(a, wait, t["input_wait"]),) if waited else ()),
            *((crowding_evidence(step, crowd, t["crowding"]),) if crowded else ()),
        ),
        fixes=(
            Fix(
                "let OpenCV or NumPy, whichever a worker uses, compute with one thread there",
                _CHANGE,
                where_of(training_loader(a, waits)),
                "small change",
            ),
            Fix("or all of the job's NumPy", "OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1", None, "one line"),
        ),
        saving=model.saving(best, worst, "workers of one thread each, by how long they stand in line for a core"),
    )


def _with_one_thread(a: Analysis, lost: float) -> float:
    """Step time when this share of the workers' CPU time was lost by waiting for one another."""
    work_s, workers = cpu_of_workers_s(a), sum(a.of_host(a.by_rank("loader.workers")).values())
    least_s = (1.0 - lost) * work_s / max(workers, 1.0)
    floor_s = min(least_s, a.value("step.time_s"))
    return step_with_less_work(a, delay_of_own_making(a), lost, lost * work_s, floor_s=floor_s)


RULE = rule(
    __name__,
    "loader workers compute with several threads",
    check,
    needs=(
        "step.time_s",
        "step.input_wait_s",
        "loader.workers",
        "loader.helper_cores",
        "loader.helper_share",
        "fetch.wall_s",
        "fetch.delay_share",
        "cpu.allowed_cores",
        "cpu.job_cores",
    ),
    explains=("DAT001", "DAT004", "DAT005", "DAT009", "DAT011", "COM002"),
    thresholds={
        "cores": Threshold(
            0.10,
            "of the allowed cores: without such threads handing over took up to 5 % of two, but 13 % with batches of 3 ms",
        ),
        "share": Threshold(
            0.25,
            "of the workers' CPU time: up to 0.04 in workers that keep one core busy, from 0.52 on with such threads",
        ),
        "delay": Threshold(0.15, "as for DAT005: in sound jobs with a worker beside each core it stays below a tenth"),
        **CROWDED,
    },
)
