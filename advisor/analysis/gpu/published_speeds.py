"""Compares the job's throughput with published figures for the same model, recognised by its layers."""

from __future__ import annotations

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import gpus_of_job, model_of, partly_frozen, picture_of
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import (
    PRECISION_HALF,
    PRECISION_TF32,
    REFERENCE_IMAGES_PER_S,
    REFERENCE_OBSERVED_IMAGES_PER_S,
    REFERENCE_TUNED_IMAGES_PER_S,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget
from rn50_advisor.advisor.reference.training_speeds import Tier, band
from rn50_advisor.probes.documents.rank_documents import RankFacts

# Number of convolutions and of parameters below the classifier. ResNeXt50 has the same number of convolutions but other parameters.
_MODELS = {(53, 23_508_032): "resnet50"}
_STALLS = ("input_wait", "gap", "gap.evaluation", "gap.checkpoint")
_TIERS: tuple[Tier, ...] = ("typical", "tuned")


def reference_values(recording: Recording, budget: Budget, values: Measured) -> Measured:
    """Images/s of the whole job and of its reference, or the reason why there is no reference."""
    found, facts = Measured(), _facts(recording)
    model, size = known_model(facts), picture_of(facts)
    image = size[0] if size is not None and size[0] == size[1] else None
    precision, cuda = _precision(facts, values), facts.get("cuda")
    if cuda is None:
        return found
    if model is None or image is None or precision is None:
        found.missing[REFERENCE_IMAGES_PER_S, JOB] = (
            "the model is not in the reference table, or its precision was not observed"
        )
        return found
    ranks, gpus = max(len(budget.per_rank), 1), gpus_of_job(recording, values)
    name = cuda.get("name", "")
    usual, tuned = (
        band(name, gpus=gpus, precision=precision, tier=tier, model=model, image_size=image) for tier in _TIERS
    )
    samples, step = values.get((STEP_SAMPLES, JOB)), values.get((STEP_TIME_S, JOB))
    if usual is None or not samples or not step:
        found.missing[REFERENCE_IMAGES_PER_S, JOB] = (
            f"no source has measured {model} at {image} pixels in {precision} on {gpus} × {name}"
        )
        return found
    working = step - sum(budget.critical.get(phase, 0.0) for phase in _STALLS)
    found[REFERENCE_IMAGES_PER_S, JOB] = usual.lo
    if working > 0:
        found[REFERENCE_OBSERVED_IMAGES_PER_S, JOB] = samples * ranks / working
    if tuned is not None:
        found[REFERENCE_TUNED_IMAGES_PER_S, JOB] = tuned.hi
    return found


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
