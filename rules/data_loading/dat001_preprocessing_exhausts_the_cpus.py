"""Preprocessing exhausts the CPUs.

What it does: finds training that waits for input, or for a core, while the loader's workers compute and no allowed core is left idle.

Why it is slow: the cores this job may use cannot decode and transform as many samples per second as the step consumes. More workers
only share the same cores. Where the step computes on those cores too, it waits for them in the middle of its own work instead.

Evidence: waiting for input (but for what comes after a batch was made), or of the training thread for a core that the workers hold, as a
share of the step; CPU time (and waiting for a core) as a share of making a batch; cores the job keeps busy of those it is allowed.

Fix: make each sample cheaper: pre-resized files, a faster JPEG decoder, uint8 batches normalised on the device, fewer transforms; or
decode on the GPU (DALI); or store decoded data (FFCV); or get more cores per GPU. Never more workers: fewer, where the forecast over
worker counts has fewer of them as fast, for what the others hold in memory.

Estimate: the step without these waits is the ceiling; halving the CPU work of a sample halves what is left of them. Neither beats the
job's remaining CPU work over the allowed cores.

False alarms: a CPU quota looks like idle cores (CPU001 looks there); workers at 100 % are DAT004 while cores idle beside them, or more of
them would shorten the step even at worst on what neighbours leave; compute threads that crowd each other are CPU005, neighbours CPU003.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.rules.analysis_reading import (
    busy_evidence,
    common,
    cpu_of_workers_s,
    crowding_evidence,
    lost_to_input,
    mean,
    model_of,
    training_loader,
    where_of,
    workers_for,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, making_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, crowding_by_workers, step_with_less_work
from rn50_advisor.rules.data_loading.worker_supply import STAFFED, cores_idle, workers_missing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# A line is named where at least so many stacks say so, and this share of them: then the fix begins there.
_LEAST_STACKS = 6
_LINE_SHARE = 2 / 3
_AS_FAST = 1.03  # times today's step, in the middle of what is foreseen: two runs of one job differ by more


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, cpu, delay = making_waits(a), a.by_rank("fetch.cpu_share"), a.by_rank("fetch.delay_share")
    workers, step = a.by_rank("loader.workers"), a.value("step.time_s")
    wait, computing = common(waits), mean(cpu) + mean(delay)
    work, crowd = cpu_of_workers_s(a), crowd_s(a, t["workers_share"])
    crowded = crowd >= t["crowding"] * step
    level = severity((wait + crowd if crowded else wait) / step)
    exhausted = not cores_idle(a, t) and not workers_missing(a, t)
    if (
        min(workers.values()) < 1
        or not (crowded or wait >= t["input_wait"] * step)
        or computing < t["computing"]
        or not exhausted
        or level is None
    ):
        return Clear(RULE.id)
    model, line, crowding = model_of(a), _dominant_line(a), crowding_by_workers(a, t["workers_share"])
    best, worst = (step_with_less_work(a, crowding, share, share * work) for share in (1.0, 0.5))
    return Finding(
        rule=RULE.id,
        title="Preprocessing needs more CPU than the job is allowed",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - best if crowded else lost_to_input(a),
        evidence=(
            *([input_evidence(a, wait, t["input_wait"])] if wait >= t["input_wait"] * step else []),
            *([crowding_evidence(step, crowd, t["crowding"])] if crowded else []),
            Evidence(
                "fetch.cpu_share", computing, "", t["computing"], "making a batch is computing or waiting for a core"
            ),
            busy_evidence(a),
            *([_line_evidence(line)] if line else []),
        ),
        fixes=(
            Fix(
                "make each sample cheaper",
                "store the images at training size, decode with a faster decoder (torchvision.io.decode_jpeg, simplejpeg), "
                "send uint8 and normalise on the device",
                Where(line.file, line.line) if line else where_of(training_loader(a, waits)),
                "larger change",
            ),
            *_fewer_workers(a, training_loader(a, waits)),
            Fix("more CPU cores per rank, or decoding on the GPU (DALI)", "", None, "outside the code"),
        ),
        saving=model.saving(best, worst, "the CPU work of a sample halved or better"),
    )


def _fewer_workers(a: Analysis, loader: LoaderFacts | None) -> tuple[Fix, ...]:
    """Where fewer of them would be as fast: their memory comes back, if nothing else does."""
    if a.forecast is None or loader is None:
        return ()
    present, enough = loader.num_workers, workers_for(a)[0]
    now, then = (sum(a.forecast.step_s(count)) for count in (present, enough))
    if enough >= present or then > _AS_FAST * now:
        return ()
    change = f"DataLoader(..., num_workers={enough}): {present - enough} processes a rank less to hold in memory"
    return (Fix(f"num_workers={present} → {enough}: as fast, with less memory", change, where_of(loader), "one line"),)


def _dominant_line(a: Analysis) -> SampleLine | None:
    """The line of the user's own code where most stacks of the workers stood, if it stands for most of a sample."""
    line = a.sample.lines[0] if a.sample and a.sample.lines else None
    return line if line and line.share >= _LINE_SHARE and line.looks >= _LEAST_STACKS else None


def _line_evidence(line: SampleLine) -> Evidence:
    note = f"of {line.looks} stacks of workers making samples, in {line.words}"
    return Evidence("stack samples", float(line.seen), "", None, note)


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
        "computing": Threshold(
            0.70, "below it, waiting for reads or locks is a third of the work and cores are not the limit alone"
        ),
        **CROWDED,
        **STAFFED,
    },
)
