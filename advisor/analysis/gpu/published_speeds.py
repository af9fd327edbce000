"""What a job makes beside what such a job has been measured to make elsewhere, for models of the reference table, told by their layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import gpus_of_job, model_of, partly_frozen, picture_of
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget
from rn50_advisor.advisor.reference.training_speeds import Tier, band

Values = dict[tuple[str, str], float]

# Convolutions and parameters below the classifier: ResNeXt50 has as many of the first, and other ones of the second.
_MODELS = {(53, 23_508_032): "resnet50"}
_STALLS = ("input_wait", "gap", "gap.evaluation", "gap.checkpoint")
_TIERS: tuple[Tier, ...] = ("typical", "tuned")
_REFERENCE = "reference.images_per_s"


def reference_values(
    recording: Recording, budget: Budget, values: Mapping[tuple[str, str], float], missing: dict[str, str]
) -> Values:
    """Images/s of the whole job and of its reference; why there is none otherwise."""
    told = _facts(recording)
    model, size = known_model(told), picture_of(told)
    image = size[0] if size is not None and size[0] == size[1] else None
    precision, cuda = _precision(told, values), told.get("cuda")
    if not isinstance(cuda, Mapping):
        return {}
    if model is None or image is None or precision is None:
        missing[_REFERENCE] = "no model of the reference table, or what it computes with was not seen"
        return {}
    ranks, gpus = max(len(budget.per_rank), 1), gpus_of_job(recording, values)
    name = str(cuda.get("name", ""))
    usual, tuned = (
        band(name, gpus=gpus, precision=precision, tier=tier, model=model, image_size=image) for tier in _TIERS
    )
    samples, step = values.get(("step.samples", JOB)), values.get(("step.time_s", JOB))
    if usual is None or not samples or not step:
        missing[_REFERENCE] = f"no source has measured {model} at {image} pixels in {precision} on {gpus} × {name}"
        return {}
    working = step - sum(budget.critical.get(phase, 0.0) for phase in _STALLS)
    found = {_REFERENCE: usual.lo}
    if working > 0:
        found["reference.observed_images_per_s"] = samples * ranks / working
    if tuned is not None:
        found["reference.tuned_images_per_s"] = tuned.hi
    return {(name, JOB): value for name, value in found.items()}


def known_model(told: Mapping[str, Any]) -> str | None:
    """The name of a rank's model in the reference table, by what its layers come to; where they do not tell, by what its optimizer steps.

    What is compiled has none. DataParallel's replicas have layers, and older recordings none of their parameters. None where part of
    it is frozen: the references trained all of it.
    """
    if partly_frozen(told):
        return None
    model, linear = told.get("model"), told.get("linear")
    if not isinstance(model, Mapping) or not isinstance(linear, Mapping) or not model.get("parameters"):
        stepped = model_of(told)
        return stepped.name if stepped is not None and stepped.name in _MODELS.values() else None
    shape = linear.get("weight_shape")
    classifier = shape[0] * (shape[1] + 1) if isinstance(shape, (list, tuple)) and len(shape) == 2 else 0
    layers = model.get("layers") or {}
    return _MODELS.get((int(layers.get("Conv2d", 0)), int(model.get("parameters", 0)) - classifier))


def _facts(recording: Recording) -> Mapping[str, Any]:
    """The lowest rank speaks for all."""
    processes = process_by_rank(recording.processes)
    return recording.facts.get(processes[min(processes)].pid, {}) if processes else {}


def _precision(told: Mapping[str, Any], values: Mapping[tuple[str, str], float]) -> str | None:
    ranks = sorted(scope for name, scope in values if name == "precision.half")
    if not ranks:
        return None
    if values["precision.half", ranks[0]]:
        return "amp"
    return "tf32" if values.get(("precision.tf32", ranks[0])) else "fp32"
