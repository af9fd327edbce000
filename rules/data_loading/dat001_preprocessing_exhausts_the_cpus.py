"""Data loading: CPU-bound preprocessing.

What it does: finds training that waits for input, or for a CPU core, while the loader workers compute and no allowed
core is idle.

Fires when: input wait ≥ 5 % of the step, or ≥ 10 % waiting for cores that the workers hold; no allowed core idle.

Why it is slow: the cores available to this job cannot decode and transform samples as fast as the training step
consumes them. More workers only share the same cores. If the step itself computes on these cores, it waits for them in
the middle of its own work instead.

Evidence: the share of the step spent waiting for input (without the transfer of finished batches), or the share in
which the training thread waits for a core that the workers occupy; CPU time (and waiting for a core) as a share of
making a batch; the cores that the job keeps busy, out of those it is allowed.

Fix: if transforms such as ColorJitter or RandomRotation run on whole pictures that a crop or resize makes smaller only
afterwards, put this one first. Random pictures then differ slightly: a rotation's empty corners stay in the picture,
and contrast is that of the crop. RandomCrop and CenterCrop stay behind a rotation, whose corners they cut off, and
behind a Resize: they would be other crops. Else make each sample cheaper: use pre-resized files, a faster JPEG decoder,
uint8 batches normalised on the device, or fewer transforms. Alternatively decode on the GPU (DALI), store decoded data
(FFCV), or get more cores per GPU. More workers never help. If the worker forecast predicts the same speed with fewer
workers, use fewer: that frees the memory of the others.

Estimate: at best these waits disappear. At worst the CPU work of a sample is halved, and the waits with it. Where the
step computes with several threads, three quarters of the other threads' waits for a core count, too: a parallel region
ends with its last thread. For transforms before a crop or resize: their measured CPU time times the share of pixels
dropped, of which 80 % is saved at worst; if the sizes or the order are unknown, nothing is advised about it. No estimate
goes below the job's remaining CPU work divided by the allowed cores.

False alarms: a CPU quota looks like idle cores (CPU001 covers it). Workers that are 100 % busy belong to DAT004 while
cores are idle, or when more workers would shorten the step even in the worst case, on the cores that neighbours leave.
Contention between compute threads belongs to CPU005, neighbours to CPU003.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import CPU_ALLOWED_CORES, CPU_HOST_BUSY_CORES, CPU_JOB_CORES
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_CPU_SHARE,
    FETCH_DELAY_SHARE,
    LOADER_WORKERS,
    SAMPLE_CPU_S,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
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
from rn50_advisor.rules.data_loading.preprocessing import (
    CROWDED,
    crowd_s,
    crowding_by_workers,
    dominant_line,
    read_for_nothing,
    step_with_less_work,
)
from rn50_advisor.rules.data_loading.transform_order import LateShrink, late_shrink
from rn50_advisor.rules.data_loading.worker_supply import WORKER_THRESHOLDS, cores_idle, workers_missing
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# The finding names a line if this share of the stacks show it.
_LINE_SHARE = 2 / 3
_CHEAPER = (
    "do once, before training, what is the same in every epoch (parsing, tokenising, decoding, resizing); "
    "NumPy or torch on whole arrays instead of Python objects"
)
_CHEAPER_PICTURES = (
    "store the images at training size, decode with a faster decoder (torchvision.io.decode_jpeg, simplejpeg), "
    "send uint8 and normalize on the device"
)
_STEP_RATIO_MAX = 1.03  # times today's step, at the middle of the forecast: two runs of one job differ by more


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, cpu, delay = making_waits(a), a.by_rank(FETCH_CPU_SHARE), a.by_rank(FETCH_DELAY_SHARE)
    workers, step = a.by_rank(LOADER_WORKERS), a.value(STEP_TIME_S)
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
    model, line, crowding = model_of(a), dominant_line(a, _LINE_SHARE), crowding_by_workers(a, t["workers_share"])
    loader = training_loader(a, waits)
    late = late_shrink(a.sample, loader)
    spared = late.shares_saved if late else (1.0, 0.5)
    best, worst = (step_with_less_work(a, crowding, share, share * work) for share in spared)
    return Finding(
        rule=RULE.id,
        title="Data loading: CPU-bound preprocessing",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - best if crowded else lost_to_input(a),
        evidence=(
            *([input_evidence(a, wait, t["input_wait"])] if wait >= t["input_wait"] * step else []),
            *([crowding_evidence(step, crowd, t["crowding"])] if crowded else []),
            Evidence.of(
                FETCH_CPU_SHARE,
                computing,
                t["computing"],
                "of batch preparation is CPU time or waiting for a core",
                form="continues",
            ),
            busy_evidence(a),
            *([_late_evidence(late)] if late else []),
            *([_line_evidence(line)] if line else []),
        ),
        fixes=(
            *([late.fix(where_of(loader))] if late else []),
            Fix(
                "make each sample cheaper",
                read_for_nothing(a) + (_CHEAPER_PICTURES if _pictures(a) else _CHEAPER),
                Where(line.file, line.line) if line else where_of(loader),
                "larger change",
            ),
            *_fewer_workers(a, loader),
            Fix(
                "more CPU cores per rank" + (", or decoding on the GPU (DALI)" if _pictures(a) else ""),
                "",
                None,
                "outside the code",
            ),
        ),
        saving=model.saving(best, worst, late.basis if late else "half the CPU work per sample or less"),
    )


def _pictures(a: Analysis) -> bool:
    """True if samples were seen to be opened as images."""
    return a.sample is not None and bool(a.sample.picture)


def _fewer_workers(a: Analysis, loader: LoaderFacts | None) -> tuple[Fix, ...]:
    """Suggests fewer workers if they would be as fast: at least their memory is freed."""
    if a.forecast is None or loader is None:
        return ()
    present, enough = loader.num_workers, workers_for(a)[0]
    now, then = (sum(a.forecast.step_s(count)) for count in (present, enough))
    if enough >= present or then > _STEP_RATIO_MAX * now:
        return ()
    title, fewer = (
        f"num_workers={present} → {enough}: as fast, with less memory",
        CallChange.of("DataLoader", num_workers=enough),
    )
    more = f": frees the memory of {present - enough} processes per rank"
    return (Fix.of(title, fewer, where_of(loader), "one line", more=more),)


def _late_evidence(late: LateShrink) -> Evidence:
    return Evidence.of(SAMPLE_CPU_S, late.cpu_s, note=late.words, form="continues")


def _line_evidence(line: SampleLine) -> Evidence:
    note = f"of {line.looks} stacks of workers making samples, in {line.words}"
    return Evidence("stack samples", float(line.seen), "", None, note, form="explains")


RULE = rule(
    __name__,
    "Data loading: CPU-bound preprocessing",
    check,
    needs=(
        STEP_TIME_S,
        STEP_INPUT_WAIT_S,
        FETCH_CPU_SHARE,
        FETCH_DELAY_SHARE,
        LOADER_WORKERS,
        CPU_ALLOWED_CORES,
        CPU_JOB_CORES,
        CPU_HOST_BUSY_CORES,
    ),
    thresholds={
        "computing": Threshold(
            0.70, "below it, reads or locks take a third of the time, so cores are not the only limit"
        ),
        **CROWDED,
        **WORKER_THRESHOLDS,
    },
    triage_checks=("decode.images_per_core_s", "decode.images_all_cores_s"),
)
