"""Preprocessing exhausts the CPUs.

What it does: finds training that waits for input while the loader's workers compute and no allowed core is left idle.

Why it is slow: the cores this job may use cannot decode and transform as many samples per second as the step consumes. More workers
only share the same cores.

Evidence: waiting for input as a share of the step; CPU time (and waiting for a core) as a share of making a batch; cores the job keeps
busy of those it is allowed.

Fix: make each sample cheaper: pre-resized files, a faster JPEG decoder, uint8 batches normalised on the device, fewer transforms; or
decode on the GPU (DALI); or store decoded data (FFCV); or get more cores per GPU. Never more workers.

Estimate: the step without input wait is the ceiling; halving the CPU work of a sample halves what is left of the wait.

False alarms: a CPU quota looks like idle cores (CPU001 looks there); one worker at 100 % with idle cores beside it is DAT004.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.reading import (
    begin_of_epochs,
    common,
    idle_cores,
    input_evidence,
    lost_to_input,
    mean,
    model_of,
    spare_cores,
    training_loader,
    where_of,
)
from rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, cpu, delay = a.by_rank("step.input_wait_s"), a.by_rank("fetch.cpu_share"), a.by_rank("fetch.delay_share")
    workers, step = a.by_rank("loader.workers"), a.value("step.time_s")
    wait, computing = common(waits), mean(cpu) + mean(delay)
    busy, allowed = max(a.value("cpu.host_busy_cores"), a.value("cpu.job_cores")), a.value("cpu.allowed_cores")
    level = severity(wait / step)
    exhausted = idle_cores(a) < spare_cores(a, cores=t["spare_cores"], share=t["spare_share"])
    if (
        min(workers.values()) < 1
        or wait < t["input_wait"] * step
        or computing < t["computing"]
        or not exhausted
        or level is None
    ):
        return Clear(RULE.id)
    model = model_of(a)
    without = {(rank, "input_wait"): begin_of_epochs(a, rank) for rank in waits}
    half = {(r, "input_wait"): 0.5 * (begin_of_epochs(a, r) + model.own[r]["input_wait"]) for r in waits}
    return Finding(
        rule=RULE.id,
        title="Preprocessing needs more CPU than the job is allowed",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence(
                "fetch.cpu_share", computing, "", t["computing"], "making a batch is computing or waiting for a core"
            ),
            Evidence("cpu.host_busy_cores", busy, "cores", None, f"of {allowed:g} allowed: no room for another worker"),
        ),
        fixes=(
            Fix(
                "make each sample cheaper",
                "store the images at training size, decode with a faster decoder (torchvision.io.decode_jpeg, simplejpeg), "
                "send uint8 and normalise on the device",
                where_of(training_loader(a, waits)),
                "larger change",
            ),
            Fix("more CPU cores per rank, or decoding on the GPU (DALI)", "", None, "outside the code"),
        ),
        saving=model.saving(model.step_if(without), model.step_if(half), "the CPU work of a sample halved or better"),
    )


RULE = rule(
    __name__,
    "preprocessing exhausts the CPUs",
    check,
    needs=(
        "step.time_s",
        "step.input_wait_s",
        "fetch.cpu_share",
        "fetch.delay_share",
        "loader.workers",
        "cpu.allowed_cores",
        "cpu.job_cores",
        "cpu.host_busy_cores",
    ),
    explains=("COM002",),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "computing": Threshold(
            0.70, "below it, waiting for reads or locks is a third of the work and cores are not the limit alone"
        ),
        "spare_cores": Threshold(0.5, "half a core: less cannot carry another worker"),
        "spare_share": Threshold(0.15, "a saturated host still shows up to 15 % idle, in short gaps between batches"),
    },
)
