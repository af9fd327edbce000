"""A rank's FLOP/s compared with its GPU's peak and with other programs' results for the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.wording.quantities import number, share

FACT = "roofline"
_PRECISION_WORDS = {"fp32": "FP32", "tf32": "TF32", "bf16": "bf16", "fp16": "fp16", "fp8": "FP8"}


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roofline of one rank, TFLOP/s. `reference` and `tuned`: lowest and highest published results, scaled to one rank."""

    rank: int
    source: Literal["table", "window"]
    flops_per_sample: float
    samples_per_s: float
    tflops: float
    model: str = ""
    counted_per_sample: float | None = None  # counted in a deep window, if a table knows the model too
    hardware: str = ""
    precision: str = ""
    peak_tflops: float | None = None
    peak_source: str = ""
    reference: tuple[float, float] | None = None
    reference_source: str = ""
    tuned: tuple[float, float] | None = None
    gpus: int = 1  # GPUs that this rank computes on: several with DataParallel

    @property
    def mfu(self) -> float | None:
        return self.tflops / self.peaks_tflops if self.peaks_tflops else None

    @property
    def peaks_tflops(self) -> float | None:
        """Peak of all GPUs of this rank together."""
        return self.peak_tflops * self.gpus if self.peak_tflops else None


def roofline_facts(found: Roofline | None) -> dict[str, Any]:
    """The roofline for the report's facts. Without a peak (on a CPU) it is left out, unless FLOPs were counted on request."""
    if found is None or (found.peak_tflops is None and found.source == "table" and found.counted_per_sample is None):
        return {}
    return {FACT: asdict(found)}


def roofline_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text for each line of the roofline in a report's facts; empty if they have another shape."""
    stored = facts.get(FACT)
    try:
        found = _from(stored) if isinstance(stored, Mapping) else None
        return _rows(found) if found is not None else []
    except (TypeError, ValueError, KeyError):
        return []


def _from(stored: Mapping[str, Any]) -> Roofline:
    pairs = {key: tuple(stored[key]) if stored[key] else None for key in ("reference", "tuned")}
    return Roofline(**{**stored, **pairs})


def _rows(found: Roofline) -> list[tuple[str, str]]:
    a_sample = f"{number(found.flops_per_sample / 1e9)} GFLOP"
    if found.source == "table":
        a_sample += f", as {found.model} is known to take"
        if found.counted_per_sample is not None:
            a_sample += f" (counted in the profiler's window: {number(found.counted_per_sample / 1e9)} GFLOP)"
    else:
        a_sample += ", counted in the profiler's window by the shapes of its operators"
    rows = [("training on a sample", a_sample)]
    on = f" on {found.gpus} GPUs" if found.gpus > 1 else ""
    rate = f"{_tflops(found.tflops)} TFLOP/s at {number(found.samples_per_s)} samples/s of one rank{on}"
    if found.mfu is not None and found.peak_tflops is not None:
        precision = _PRECISION_WORDS.get(found.precision, found.precision)
        each = f"{found.gpus} × " if found.gpus > 1 else ""
        rate += (
            f": {share(found.mfu)} of {each}{_tflops(found.peak_tflops)} TFLOP/s in {precision} ({found.peak_source})"
        )
    rows.append(("reached", rate))
    for label, band, source in (
        ("typical elsewhere", found.reference, found.reference_source),
        ("tuned elsewhere", found.tuned, ""),
    ):
        if band is not None:
            typical = " – ".join(dict.fromkeys(_tflops(value) for value in band))
            of_peak = ""
            if found.peaks_tflops:
                shares = dict.fromkeys(share(value / found.peaks_tflops) for value in band)
                of_peak = f", {' – '.join(shares)} of the peak"
            rows.append((label, f"{typical} TFLOP/s{of_peak}{f' ({source})' if source else ''}"))
    return rows


def _tflops(value: float) -> str:
    return number(float(f"{value:.3g}"))
