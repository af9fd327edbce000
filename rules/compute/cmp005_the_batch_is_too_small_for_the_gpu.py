"""Batch too small for the GPU.

What it does: finds jobs in which a larger batch would take hardly longer, with memory left for it.

Fires when: twice the batch would be ≥ 20 % faster per sample, with SMs and memory to spare.

Why it is slow: much of a step costs the same for one sample as for many: launching kernels, filling the GPU, the
optimizer step.

Evidence: a benchmark of this machine that swept batch sizes of this model (`rn50-advisor bench -o RUN_DIR/bench.json`):
the smallest of the larger batches that is close to the fastest, as far as memory allows. Without a benchmark, batches
of several sizes in the run (the last one of each epoch, for example): a line through their compute times shows the part
that does not depend on the size. Tensors fill less than half of the memory; if the GPU reports its activity, neither
its SMs nor its tensor cores nor its memory are busy.

Fix: that `batch_size`, or by the line a batch two or four times as large, with the learning rate in proportion (and
warm-up). Gradient accumulation does not help: it computes the same small batches.

Estimate: the time per sample in the larger batch, as measured or from that line, limited by data loading.

False alarms: an input-bound job has the same step times: therefore only compute counts here, and data loading limits
the gain. Without batches of other sizes, in the run or in a benchmark, the rule is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_DRAM_ACTIVE_SHARE,
    GPU_PEAK_SHARE,
    GPU_SM_ACTIVE_SHARE,
    GPU_TENSOR_ACTIVE_SHARE,
)
from rn50_advisor.advisor.model.measures.input_measures import BATCH_FIXED_SHARE
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import COMPUTE, common, model_of, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import batch_size, loading_floor_s, on_gpu_of, timing_source
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_FACTORS = (4, 2)
_MEMORY_MAX = 0.90  # of the memory, with the larger batch: GPU003 fires from there on
_NEAR_FASTEST_SHARE = 0.05  # of the fastest batch: as in the benchmark's knee
_ACTIVITY_NOTES = {
    GPU_SM_ACTIVE_SHARE: "of the SMs had work",
    GPU_TENSOR_ACTIVE_SHARE: "of the time tensor cores were active",
    GPU_DRAM_ACTIVE_SHARE: "of the device memory's bandwidth was in use",
}


@dataclass(frozen=True, slots=True)
class _Larger:
    """A batch `times` as large: the step time for today's samples at best, as expected and at worst, and the evidence."""

    times: float
    best_s: float
    expected_s: float
    least_s: float
    evidence: Evidence
    basis: str


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    fixed, peak = a.by_rank(BATCH_FIXED_SHARE), max(a.by_rank(GPU_PEAK_SHARE).values())
    busy = _busy(a, fixed)
    if peak > t["memory"] or any(e.value > t["activity"] for e in busy if isinstance(e.value, float)):
        return Clear(RULE.id)
    swept = all(rank in a.batch_curves for rank in fixed)
    found = _by_sweep(a, fixed, peak, t) if swept else _by_line(a, fixed, peak, t)
    step = a.value(STEP_TIME_S)
    level = severity((step - found.expected_s) / step) if found is not None else None
    if found is None or level is None:
        return Clear(RULE.id)
    larger = round(found.times * batch_size(a))
    return Finding(
        rule=RULE.id,
        title="Batch too small for the GPU",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=step - found.expected_s,
        evidence=(
            found.evidence,
            Evidence.of(
                GPU_PEAK_SHARE,
                peak,
                t["memory"],
                "of GPU memory is taken by tensors at the peak",
                form="continues",
            ),
            *(replace(e, threshold=t["activity"]) for e in busy),
        ),
        fixes=(
            Fix.of(
                f"batches of {larger}, with the learning rate {found.times:.3g} times as high (and a warm-up); "
                "accumulation does not help",
                CallChange.of("DataLoader", batch_size=larger),
                where_of(training_loader(a, fixed)),
                "small change",
            ),
        ),
        saving=model_of(a).saving(found.best_s, found.least_s, found.basis),
    )


def _busy(a: Analysis, ranks: Mapping[int, float]) -> list[Evidence]:
    """The activity that these ranks' GPUs report, the highest of each kind."""
    found = []
    for name, note in _ACTIVITY_NOTES.items():
        shares = [share for rank in ranks if (share := on_gpu_of(a, rank, name)) is not None]
        if shares:
            found.append(Evidence(name, max(shares), "", None, note, form="continues"))
    return found


def _by_sweep(a: Analysis, fixed: Mapping[int, float], peak: float, t: Thresholds) -> _Larger | None:
    """A larger batch by the benchmark's sweep; the lowest rank represents all, because they train alike."""
    curve = a.batch_curves[min(fixed)]
    size = curve.larger(near=_NEAR_FASTEST_SHARE, most=curve.batch * _MEMORY_MAX / max(peak, 1e-9))
    gain = curve.gain(size)
    if gain < t["gain"]:
        return None
    times = size / curve.batch
    keep = dict.fromkeys(fixed, 1.0 / gain)
    best, expected = (_if_larger(a, keep, times, hopeful=hopeful) for hopeful in (True, False))
    step = a.value(STEP_TIME_S)
    note = (
        f"times the samples/s with batches of {size:.0f} as with {curve.batch:.0f}{timing_source(a, fixed)}: "
        f"{curve.rate(size):.0f} instead of {curve.rate(curve.batch):.0f}"
    )
    evidence = Evidence("samples/s by the sweep", gain, "times", t["gain"], note)
    basis = f"time per sample in batches of {size:.0f}, as the benchmark measured it"
    return _Larger(times, best, expected, step - (step - expected) / 2, evidence, basis)


def _by_line(a: Analysis, fixed: Mapping[int, float], peak: float, t: Thresholds) -> _Larger | None:
    share, step = common(fixed), a.value(STEP_TIME_S)
    if 2.0 / (2.0 - share) < t["gain"]:
        return None
    times = next(n for n in _FACTORS if n * peak <= _MEMORY_MAX or n == _FACTORS[-1])
    keep = {n: {rank: 1.0 - own * (1.0 - 1.0 / n) for rank, own in fixed.items()} for n in _FACTORS}
    best, expected = (_if_larger(a, keep[n], n, hopeful=n == times) for n in (times, 2))
    note = (
        f"of a step's compute does not depend on the number of samples{timing_source(a, fixed)}; "
        f"batches have {batch_size(a):.0f} now"
    )
    evidence = Evidence.of(BATCH_FIXED_SHARE, share, 2.0 - 2.0 / t["gain"], note, form="continues")
    basis = f"time per sample in batches {times} times as large, by the line through the observed sizes"
    return _Larger(times, best, expected, step - (step - expected) / 2, evidence, basis)


def _if_larger(a: Analysis, keep: Mapping[int, float], times: float, *, hopeful: bool) -> float:
    """Time for today's samples in a batch `times` as large; `keep`: the share of each rank's compute per sample that remains."""
    model = model_of(a)
    changes = {(rank, phase): model.own[rank][phase] * share for rank, share in keep.items() for phase in COMPUTE}
    # one gradient exchange for all these samples
    return model.step_if(changes, wire_s=model.wire_s / times, floor_s=loading_floor_s(a, hopeful=hopeful))


RULE = rule(
    __name__,
    "Batch too small for the GPU",
    check,
    needs=(STEP_TIME_S, BATCH_FIXED_SHARE, GPU_PEAK_SHARE),
    thresholds={
        "gain": Threshold(1.20, "times as many samples/s by the larger batch: less is not worth a new learning rate"),
        "memory": Threshold(0.45, "of the memory, by tensors: twice as much stays below nine tenths"),
        "activity": Threshold(
            0.60, "of the SMs, tensor cores or memory bandwidth: a busier GPU has no room for more samples at a time"
        ),
    },
)
