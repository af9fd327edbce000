"""Compares the job's throughput with published figures for the same model, recognised by its layers.

Like with like: a row counts only if its GPU, precision, memory layout and batch size are the job's.
"""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import (
    gpus_of_job,
    model_of,
    partly_frozen,
    picture_of,
    replicas,
)
from rn50_advisor.advisor.model.gpu.gpu_pace import PublishedSpeed
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import (
    LAYOUT_CHANNELS_FIRST,
    PRECISION_HALF,
    PRECISION_TF32,
    REFERENCE_IMAGES_PER_S,
    REFERENCE_OBSERVED_IMAGES_PER_S,
    REFERENCE_TUNED_IMAGES_PER_S,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget
from rn50_advisor.advisor.reference.training_speeds import Likeness, SpeedBand, Tier, band, matching, sources
from rn50_advisor.probes.documents.rank_documents import CudaFacts, RankFacts

# Number of convolutions and of parameters below the classifier. ResNeXt50 has the same number of convolutions but other parameters.
_MODELS = {(53, 23_508_032): "resnet50"}
_STALLS = ("input_wait", "gap", "gap.evaluation", "gap.checkpoint")
_TIERS: tuple[Tier, ...] = ("typical", "tuned")


@dataclass(frozen=True, slots=True)
class _Setting:
    """What the reference table knows a job by. `gpu`: the driver's name."""

    model: str
    image_size: int
    gpu: str
    gpus: int
    precision: str
    like: Likeness

    def band(self, tier: Tier) -> SpeedBand | None:
        return band(
            self.gpu,
            gpus=self.gpus,
            precision=self.precision,
            tier=tier,
            model=self.model,
            image_size=self.image_size,
            like=self.like,
        )


def reference_values(recording: Recording, budget: Budget, values: Measured) -> Measured:
    """Images/s of the whole job and of its reference, or the reason why there is no reference."""
    found = Measured()
    if _facts(recording).get("cuda") is None:
        return found
    setting = _setting(recording, values)
    if isinstance(setting, str):
        found.missing[REFERENCE_IMAGES_PER_S, JOB] = setting
        return found
    usual, tuned = (setting.band(tier) for tier in _TIERS)
    samples, step = values.get((STEP_SAMPLES, JOB)), values.get((STEP_TIME_S, JOB))
    if usual is None or not samples or not step:
        found.missing[REFERENCE_IMAGES_PER_S, JOB] = _unmatched(setting)
        return found
    working = step - sum(budget.critical.get(phase, 0.0) for phase in _STALLS)
    found[REFERENCE_IMAGES_PER_S, JOB] = usual.lo
    if working > 0:
        found[REFERENCE_OBSERVED_IMAGES_PER_S, JOB] = samples * max(len(budget.per_rank), 1) / working
    if tuned is not None:
        found[REFERENCE_TUNED_IMAGES_PER_S, JOB] = tuned.hi
    return found


def published_speed(recording: Recording, values: Measured) -> PublishedSpeed | None:
    """The row of the reference table with which the job is compared: the lowest that is like it. None if there is none."""
    setting = _setting(recording, values)
    usual = None if isinstance(setting, str) else setting.band("typical")
    if usual is None:
        return None
    row = min(usual.rows, key=lambda one: one.images_per_s[0])
    return PublishedSpeed(
        images_per_s=row.images_per_s[0],
        gpus=row.gpus,
        gpu=row.gpu,
        precision=row.precision,
        channels_last=bool(row.channels_last),
        batch_per_gpu=row.batch_per_gpu or 0,
        source=sources()[row.source].title,
        scaled=usual.scaled,
    )


def _setting(recording: Recording, values: Measured) -> _Setting | str:
    """The job's setting, or the reason why it is not known."""
    facts = _facts(recording)
    model, size, precision = known_model(facts), picture_of(facts), _precision(facts, values)
    if model is None or size is None or size[0] != size[1] or precision is None:
        return "the model is not in the reference table, or its precision was not observed"
    layouts, samples = values.by_rank(LAYOUT_CHANNELS_FIRST), values.get((STEP_SAMPLES, JOB))
    if not layouts or not samples:
        return "the memory layout of the convolutions, or the batch size, was not observed"
    rank = min(layouts)
    passes = max(1.0, values.get((STEP_BATCHES, rank), 1.0)) * replicas(values, rank)
    name = (facts.get("cuda") or CudaFacts()).get("name", "")
    like = Likeness(channels_last=not layouts[rank], batch_per_gpu=samples / passes)
    return _Setting(model, size[0], name, gpus_of_job(recording, values), precision, like)


def _unmatched(job: _Setting) -> str:
    """Why the job has no reference: what it is, and what was measured on its GPU."""
    layout = "channels-last" if job.like.channels_last else "channels-first"
    why = f"no source has measured {job.model} at {job.image_size} pixels in {job.precision}, {layout}, "
    why += f"with {job.like.batch_per_gpu:.0f} images per GPU, on {job.gpus} × {job.gpu}"
    rows = matching(job.gpu, gpus=job.gpus, precision=job.precision, model=job.model, image_size=job.image_size)
    rows = rows or matching(job.gpu, gpus=1, precision=job.precision, model=job.model, image_size=job.image_size)
    others = dict.fromkeys(
        f"{row.batch_per_gpu} images in channels-{'last' if row.channels_last else 'first'}"
        for row in rows
        if row.batch_per_gpu is not None and row.channels_last is not None
    )
    return f"{why}; measured there: {', '.join(others)}" if others else why


def known_model(facts: RankFacts) -> str | None:
    """The name of a rank's model in the reference table, from its layers or, if those are not known, from its optimizer's parameters.

    A compiled model shows no layers. DataParallel's replicas do, but older recordings have none of their parameters. None if part of the
    model is frozen: the references trained all of it.
    """
    if partly_frozen(facts):
        return None
    model, linear = facts.get("model"), facts.get("linear")
    if model is None or linear is None or not model.get("parameters"):
        stepped = model_of(facts)
        return stepped.name if stepped is not None and stepped.name in _MODELS.values() else None
    shape = linear.get("weight_shape", ())
    classifier = shape[0] * (shape[1] + 1) if len(shape) == 2 else 0
    return _MODELS.get((model.get("layers", {}).get("Conv2d", 0), model.get("parameters", 0) - classifier))


def _facts(recording: Recording) -> RankFacts:
    """Facts of the lowest rank, which stands for all."""
    processes = process_by_rank(recording.processes)
    return recording.facts.get(processes[min(processes)].pid, {}) if processes else {}


def _precision(facts: RankFacts, values: Measured) -> str | None:
    half = values.by_rank(PRECISION_HALF)
    if not half:
        return None
    rank = min(half)
    if half[rank]:
        return "amp"
    return "tf32" if values.get((PRECISION_TF32, rank)) else "fp32"
