"""What one rank trains, by its facts: the known model, how large its pictures are, with what precision it computes, on how many GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.work_changes import learning
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.peaks.known_models import KnownModel, known_model

Values = Mapping[tuple[str, str], float]


def model_of(told: Mapping[str, Any]) -> KnownModel | None:
    """None where part of it is frozen: what the tables say is of training all of it."""
    optimizer = told.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return None
    tensors, elements = optimizer.get("parameters"), optimizer.get("elements")
    if not isinstance(tensors, int) or not isinstance(elements, int) or partly_frozen(told):
        return None
    return known_model(tensors, elements)


def partly_frozen(told: Mapping[str, Any]) -> bool:
    """Its optimizer was given parameters that have no gradients."""
    optimizer, trained = told.get("optimizer"), learning(told)
    elements = optimizer.get("elements") if isinstance(optimizer, Mapping) else None
    return isinstance(elements, int) and trained is not None and trained < elements


def picture_of(told: Mapping[str, Any]) -> tuple[int, int] | None:
    """Height and width as the first convolution sees them, else as the loader yields them."""
    for name in ("conv", "pictures"):
        seen = told.get(name)
        shape = seen.get("shape") if isinstance(seen, Mapping) else None
        if isinstance(shape, (list, tuple)) and len(shape) == 4 and all(isinstance(n, int) for n in shape):
            last = shape[1] in (1, 3, 4)
            return (shape[2], shape[3]) if last else (shape[1], shape[2])
    return None


def convolutions_of(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the optimizer's weights of four dimensions look like; empty where they were not seen."""
    optimizer = told.get("optimizer")
    found = optimizer.get("convolutions") if isinstance(optimizer, Mapping) else None
    whole = (
        isinstance(found, Mapping) and isinstance(found.get("weights"), int) and isinstance(found.get("dtypes"), list)
    )
    return found if isinstance(found, Mapping) and whole else {}


def precision_of(told: Mapping[str, Any], values: Values, rank: int) -> str:
    """As the recorder saw the model compute; empty where it did not."""
    half = values.get(("precision.half", f"rank:{rank}"))
    if half is None:
        return ""
    if half:
        seen = [told[name] for name in ("conv", "linear", "autocast") if isinstance(told.get(name), Mapping)]
        types = [layer.get(name) for layer in seen for name in ("autocast", "weight", "dtype")]
        types += convolutions_of(told).get("dtypes", [])
        return "fp16" if "float16" in types and "bfloat16" not in types else "bf16"
    return "tf32" if values.get(("precision.tf32", f"rank:{rank}")) else "fp32"


def replicas(values: Values, rank: int) -> int:
    """GPUs among which DataParallel splits this rank's batches; 1 without it."""
    return max(1, round(values.get(("parallel.devices", f"rank:{rank}"), 1.0)))


def gpus_of_job(recording: Recording, values: Values) -> int:
    """GPUs that its ranks compute on: one that several share counts once, as CUDA names it; who does not tell it has one of its own."""
    found, beside = set(), 0
    for rank, process in process_by_rank(recording.processes).items():
        cuda = recording.facts.get(process.pid, {}).get("cuda")
        name = str(cuda.get("uuid") or "") if isinstance(cuda, Mapping) else ""
        found.add(name or f"rank:{rank}")
        beside += replicas(values, rank) - 1
    return max(1, len(found) + beside)
