"""What is known of the model that a rank trains, from its facts: architecture, image size, precision, number of GPUs, embedding tables."""

from __future__ import annotations

from collections.abc import Iterable

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, process_by_rank
from rn50_advisor.advisor.analysis.steps.work_changes import learning
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import PARALLEL_DEVICES, PRECISION_HALF, PRECISION_TF32
from rn50_advisor.advisor.model.measures.step_measures import TABLE_EMPTY_ROWS
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.peaks.known_models import KnownModel, known_model
from rn50_advisor.probes.documents.model_documents import ConvolutionWeights, OptimizerFacts
from rn50_advisor.probes.documents.rank_documents import AutocastFacts, CudaFacts, RankFacts

_TABLE_LOOKS_MIN = 2  # the first step may be unlike the others


def model_of(facts: RankFacts) -> KnownModel | None:
    """The known model; None if part of it is frozen, since the tables hold only for training all of it."""
    optimizer = facts.get("optimizer", OptimizerFacts())
    tensors, elements = optimizer.get("parameters"), optimizer.get("elements")
    if tensors is None or elements is None or partly_frozen(facts):
        return None
    return known_model(tensors, elements)


def partly_frozen(facts: RankFacts) -> bool:
    """True if the rank's optimizer has parameters without gradients."""
    elements, trained = facts.get("optimizer", OptimizerFacts()).get("elements"), learning(facts)
    return elements is not None and trained is not None and trained < elements


def picture_of(facts: RankFacts) -> tuple[int, int] | None:
    """Height and width of the images at the first convolution, else as the loader yields them."""
    for seen in (facts.get("conv"), facts.get("pictures")):
        shape = seen.get("shape", ()) if seen is not None else ()
        if len(shape) == 4:
            last = shape[1] in (1, 3, 4)
            return (shape[2], shape[3]) if last else (shape[1], shape[2])
    return None


def convolutions_of(facts: RankFacts) -> ConvolutionWeights:
    """Facts about the optimizer's four-dimensional weights; empty if none were seen."""
    return facts.get("optimizer", OptimizerFacts()).get("convolutions", ConvolutionWeights())


def precision_of(facts: RankFacts, values: Measured, rank: int) -> str:
    """The precision that the model was seen to compute in; empty if unknown."""
    half = values.get((PRECISION_HALF, rank))
    if half is None:
        return ""
    if half:
        layers = [layer for layer in (facts.get("conv"), facts.get("linear")) if layer is not None]
        types = {dtype for layer in layers for dtype in (layer.get("autocast"), layer.get("weight"))}
        types |= {facts.get("autocast", AutocastFacts()).get("dtype"), *convolutions_of(facts).get("dtypes", ())}
        return "fp16" if "float16" in types and "bfloat16" not in types else "bf16"
    return "tf32" if values.get((PRECISION_TF32, rank)) else "fp32"


def replicas(values: Measured, rank: int) -> int:
    """GPUs among which DataParallel splits this rank's batches; 1 without it."""
    return max(1, round(values.get((PARALLEL_DEVICES, rank), 1.0)))


def gpus_of_job(recording: Recording, values: Measured) -> int:
    """Number of GPUs that the ranks compute on. GPUs with the same UUID count once; a rank that reports no UUID counts as one GPU."""
    found, beside = set(), 0
    for rank, process in process_by_rank(recording.processes).items():
        cuda = recording.facts.get(process.pid, RankFacts()).get("cuda") or CudaFacts()
        found.add(cuda.get("uuid") or str(rank))
        beside += replicas(values, rank) - 1
    return max(1, len(found) + beside)


def table_values(recording: Recording, ranks: Iterable[int]) -> Measured:
    """The share of rows without a gradient in each rank's embedding tables with dense gradients; no value for a rank without any."""
    found, known = Measured(), facts_by_rank(recording)
    for rank in ranks:
        facts = known.get(rank, RankFacts())
        tables = facts.get("tables")
        looks = max((table["looks"] for table in tables or ()), default=0)
        if tables and looks >= _TABLE_LOOKS_MIN:
            seen = sum(table["rows_seen"] for table in tables)
            found[TABLE_EMPTY_ROWS, rank] = sum(table["rows_empty"] for table in tables) / seen
        elif tables and tables[0]["device"] != "cpu":
            found.missing[TABLE_EMPTY_ROWS, rank] = (
                f"gradients of embedding tables on {tables[0]['device']} are not read: that would wait for the device"
            )
        elif tables or tables is None:
            found.missing[TABLE_EMPTY_ROWS, rank] = "too few looks at the gradients of embedding tables on the CPU"
    return found
