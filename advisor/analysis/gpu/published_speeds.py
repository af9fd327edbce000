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
from rn50_advisor.advisor.reference.training_speeds import Likeness, SpeedBand, Tier, band, matching, rows, sources
from rn50_advisor.probes.documents.model_documents import ModelFacts
from rn50_advisor.probes.documents.rank_documents import CudaFacts, RankFacts

# Number of convolutions and of parameters below the classifier. ResNeXt50 has the same number of convolutions but other parameters.
_MODELS = {(53, 23_508_032): "resnet50"}
# Number of linear layers of the encoder and of layer norms; parameters with a small head and with or without a pooler, in millions. One
# that predicts words has another output layer over the whole vocabulary.
_ENCODERS = {"bert-base": (72, 25, (107.0, 111.0)), "bert-large": (144, 49, (333.0, 337.0))}
_HEADS_MAX = 2  # linear layers: a pooler and a classifier
_PREDICTS_WORDS = ("MaskedLM", "LMHead", "PreTraining")
_TOKENS_TOLERANCE = 0.05  # of the sequence length: a few short batches
_STALLS = ("input_wait", "gap", "gap.evaluation", "gap.checkpoint")
_TIERS: tuple[Tier, ...] = ("typical", "tuned")


@dataclass(frozen=True, slots=True)
class _Setting:
    """What the reference table knows a job by. `gpu`: the driver's name."""

    model: str
    size: int
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
            size=self.size,
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
    if (REFERENCE_IMAGES_PER_S, JOB) not in values:
        return None
    setting = _setting(recording, values)
    usual = None if isinstance(setting, str) else setting.band("typical")
    if usual is None:
        return None
    row = min(usual.rows, key=lambda one: one.samples_per_s[0])
    return PublishedSpeed(
        model=row.model,
        samples=_samples(row.model),
        samples_per_s=row.samples_per_s[0],
        gpus=row.gpus,
        gpu=row.gpu,
        precision=row.precision,
        channels_last=row.channels_last,
        batch_per_gpu=row.batch_per_gpu or 0,
        source=sources()[row.source].title,
        scaled=usual.scaled,
    )


def _setting(recording: Recording, values: Measured) -> _Setting | str:
    """The job's setting, or the reason why it is not known."""
    facts = _facts(recording)
    model, precision, samples = known_model(facts), _precision(facts, values), values.get((STEP_SAMPLES, JOB))
    if model is None or precision is None:
        return "the model is not in the reference table, or its precision was not observed"
    rank = min(values.by_rank(PRECISION_HALF))
    passes = max(1.0, values.get((STEP_BATCHES, rank), 1.0)) * replicas(values, rank)
    batch = samples / passes if samples else None
    first = values.get((LAYOUT_CHANNELS_FIRST, rank))
    size = _size(model, facts, batch)
    if size is None:
        return f"the size of the {_samples(model)} was not observed, or is not one of the reference table's"
    if batch is None or (first is None and model not in _ENCODERS):
        return "the memory layout of the convolutions, or the batch size, was not observed"
    name = (facts.get("cuda") or CudaFacts()).get("name", "")
    like = Likeness(channels_last=None if model in _ENCODERS else not first, batch_per_gpu=batch)
    return _Setting(model, size, name, gpus_of_job(recording, values), precision, like)


def _size(model: str, facts: RankFacts, batch: float | None) -> int | None:
    """Pixels of an image's side, or tokens of a sequence by the masks or rows of tokens that were seen on the CPU."""
    if model not in _ENCODERS:
        seen = picture_of(facts)
        return seen[0] if seen is not None and seen[0] == seen[1] else None
    padding = facts.get("padding")
    if padding is None or not padding["looks"] or not batch:
        return None
    tokens = padding["cells"] / padding["looks"] / batch
    known = {row.size for row in rows() if row.model == model}
    return next((size for size in known if abs(tokens - size) <= _TOKENS_TOLERANCE * size), None)


def _samples(model: str) -> str:
    return "sequences" if model in _ENCODERS else "images"


def _layout(channels_last: bool | None) -> str:
    return "" if channels_last is None else f" in channels-{'last' if channels_last else 'first'}"


def _unmatched(job: _Setting) -> str:
    """Why the job has no reference: what it is, and what was measured on its GPU."""
    samples, unit = _samples(job.model), "tokens" if job.model in _ENCODERS else "pixels"
    why = f"no source has measured {job.model} at {job.size} {unit} in {job.precision}, "
    why += f"with {job.like.batch_per_gpu:.0f} {samples} per GPU{_layout(job.like.channels_last)}, on {job.gpus} × {job.gpu}"
    found = matching(job.gpu, gpus=job.gpus, precision=job.precision, model=job.model, size=job.size)
    found = found or matching(job.gpu, gpus=1, precision=job.precision, model=job.model, size=job.size)
    # a source that does not state the layout of convolutions is compared with nothing
    stated = [row for row in found if row.batch_per_gpu and (job.model in _ENCODERS) == (row.channels_last is None)]
    others = dict.fromkeys(f"{row.batch_per_gpu} {samples}{_layout(row.channels_last)}" for row in stated)
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
    if (encoder := _encoder(model)) is not None:
        return encoder
    shape = linear.get("weight_shape", ())
    classifier = shape[0] * (shape[1] + 1) if len(shape) == 2 else 0
    return _MODELS.get((model.get("layers", {}).get("Conv2d", 0), model.get("parameters", 0) - classifier))


def _encoder(model: ModelFacts) -> str | None:
    """The transformer that these layers are, fine-tuned with a small head."""
    layers, millions = model.get("layers", {}), model.get("parameters", 0) / 1e6
    if any(word in model.get("class", "") for word in _PREDICTS_WORDS):
        return None
    return next(
        (
            name
            for name, (linear, norms, (least, most)) in _ENCODERS.items()
            if layers.get("LayerNorm") == norms
            and 0 < layers.get("Linear", 0) - linear <= _HEADS_MAX
            and least <= millions <= most
        ),
        None,
    )


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
