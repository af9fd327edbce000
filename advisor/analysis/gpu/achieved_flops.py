"""Achieved FLOP/s of a job: FLOPs per sample, from a table of known models or a profiler window, times samples/s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import gpus_of_job, model_of, picture_of, precision_of, replicas
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.gpu.roofline import Roofline
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import ROOFLINE_FLOPS_PER_SAMPLE, ROOFLINE_MFU, ROOFLINE_TFLOPS
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.peaks.gpu_peaks import peak
from rn50_advisor.advisor.peaks.known_models import KnownModel
from rn50_advisor.advisor.reference.training_speeds import SpeedBand, Tier, band
from rn50_advisor.probes.documents.rank_documents import RankFacts


def roofline(recording: Recording, windows: Sequence[DeepWindow], values: Measured) -> Roofline | None:
    """The roofline of the lowest rank with a profiler window, else of the lowest rank. None if FLOPs are unknown."""
    processes = process_by_rank(recording.processes)
    ranks = [window.rank for window in windows if window.rank in processes] or sorted(processes)
    step_s = values.get((STEP_TIME_S, JOB))
    if not ranks or not step_s:
        return None
    rank = ranks[0]
    samples = values.get((STEP_SAMPLES, rank))
    if not samples:
        return None
    facts = recording.facts.get(processes[rank].pid, {})
    window = next((window for window in windows if window.rank == rank), None)
    known, size = model_of(facts), picture_of(facts)
    by_table = known.flops_per_sample(*size) if known is not None and size is not None else None
    counted = window.flops / samples if window is not None and window.flops is not None else None
    flops = by_table if by_table is not None else counted
    if flops is None:
        return None
    found = Roofline(
        rank=rank,
        source="table" if by_table is not None else "window",
        flops_per_sample=flops,
        samples_per_s=samples / step_s,
        tflops=flops * samples / step_s / 1e12,
        model=f"{known.name} at {size[0]}×{size[1]}" if known and size and by_table is not None else "",
        counted_per_sample=counted if by_table is not None else None,
        gpus=replicas(values, rank),
    )
    found = _beside_the_peak(found, facts, window, values)
    if known is not None and size is not None:
        found = _beside_others(found, known, size, ranks=len(processes), gpus=gpus_of_job(recording, values))
    return found


def roofline_values(found: Roofline) -> Measured:
    values = Measured()
    values[ROOFLINE_FLOPS_PER_SAMPLE, found.rank] = found.flops_per_sample
    values[ROOFLINE_TFLOPS, found.rank] = found.tflops
    if found.mfu is not None:
        values[ROOFLINE_MFU, found.rank] = found.mfu
    return values


def _beside_the_peak(found: Roofline, facts: RankFacts, window: DeepWindow | None, values: Measured) -> Roofline:
    cuda = facts.get("cuda")
    if cuda is None:
        return found
    hardware = cuda.get("name", "")
    precision = (window.precision if window is not None else "") or precision_of(facts, values, found.rank)
    best = peak(hardware)
    if best is None or precision not in best.tflops:
        return replace(found, hardware=hardware, precision=precision)
    return replace(
        found, hardware=hardware, precision=precision, peak_tflops=best.tflops[precision], peak_source=best.source
    )


def _beside_others(found: Roofline, known: KnownModel, size: tuple[int, int], *, ranks: int, gpus: int) -> Roofline:
    """Adds published TFLOP/s per rank for jobs with this number of GPUs."""
    if not found.hardware or not found.precision or size[0] != size[1]:
        return found

    def tier(name: Tier) -> SpeedBand | None:
        return band(found.hardware, gpus=gpus, precision=found.precision, tier=name, model=known.name, size=size[0])

    def tflops(of: SpeedBand | None) -> tuple[float, float] | None:
        each = found.flops_per_sample / ranks / 1e12
        return (of.lo * each, of.hi * each) if of is not None else None

    typical = tier("typical")
    return replace(
        found,
        reference=tflops(typical),
        reference_source=typical.source if typical is not None else "",
        tuned=tflops(tier("tuned")),
    )
