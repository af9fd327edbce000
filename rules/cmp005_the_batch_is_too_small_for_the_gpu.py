"""The batch is too small for the GPU.

What it does: finds jobs in which a larger batch would take hardly longer, with memory left for it.

Why it is slow: much of a step costs the same for one sample as for many: launching kernels, filling the GPU, stepping the optimizer.

Evidence: batches of several sizes came by (the last one of each epoch, say), or a benchmark of this machine swept batches of this model
(`rn50-advisor bench -o RUN_DIR/bench.json`): a line through the time that each size takes to compute tells what part does not depend on the
size. Tensors fill less than half of the memory; where the GPU counts it, its SMs are not busy either.

Fix: `batch_size` twice or four times as large, with the learning rate in proportion (and warm-up). Gradient accumulation does not help: it
computes the same small batches.

Estimate: the time of a sample in the larger batch, from that line; loading caps it.

False alarms: an input-bound job looks the same by its step time: only compute counts here, and what loading allows caps the gain.
Without batches of other sizes, here or in a benchmark, nothing is measured.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Clear, Evidence, Finding, Fix
from rules.computing import batch_size, by_whom, loading_floor_s, on_gpu_of
from rules.reading import COMPUTE, common, model_of, training_loader, where_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity

_TIMES = (4, 2)
_MEMORY_MAX = 0.90  # of the memory, with the larger batch: GPU003 speaks from there on


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    fixed, peaks = a.by_rank("batch.fixed_share"), a.by_rank("gpu.peak_share")
    share, peak = common(fixed), max(peaks.values())
    gain = 2.0 / (2.0 - share)
    active = [s for rank in fixed if (s := on_gpu_of(a, rank, "gpu.sm_active_share")) is not None]
    if gain < t["gain"] or peak > t["memory"] or any(s > t["activity"] for s in active):
        return Clear(RULE.id)
    step = a.value("step.time_s")
    times = next(n for n in _TIMES if n * peak <= _MEMORY_MAX or n == _TIMES[-1])
    best, worst = (_if_larger(a, fixed, n, hopeful=n == times) for n in (times, 2))
    least = step - (step - worst) / 2
    level = severity((step - worst) / step)
    if level is None:
        return Clear(RULE.id)
    samples = batch_size(a)
    larger = round(times * samples)
    return Finding(
        rule=RULE.id,
        title="The batch is too small for the GPU",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=step - worst,
        evidence=(
            Evidence(
                "batch.fixed_share",
                share,
                "",
                2.0 - 2.0 / t["gain"],
                f"of the compute of a step is the same for fewer samples{by_whom(a, fixed)}; batches have {samples:.0f} now",
            ),
            Evidence("gpu.peak_share", peak, "", t["memory"], "of the GPU's memory, what tensors took at most"),
            *(Evidence("gpu.sm_active_share", s, "", t["activity"], "of the SMs had work") for s in active[:1]),
        ),
        fixes=(
            Fix(
                f"batches of {larger}, with the learning rate {times} times as high (and a warm-up); accumulation does not help",
                f"DataLoader(..., batch_size={larger})",
                where_of(training_loader(a, fixed)),
                "small change",
            ),
        ),
        saving=model_of(a).saving(
            best, least, f"a sample's share of a step of {times} times as many, by the line through the sizes seen"
        ),
    )


def _if_larger(a: Analysis, fixed: dict[int, float], times: int, *, hopeful: bool) -> float:
    """What today's number of samples would take of a step of so many times as many."""
    model = model_of(a)
    changes = {
        (rank, phase): model.own[rank][phase] * (1.0 - share * (1.0 - 1.0 / times))
        for rank, share in fixed.items()
        for phase in COMPUTE
    }
    # gradients are exchanged once for all of them
    return model.step_if(changes, wire_s=model.wire_s / times, floor_s=loading_floor_s(a, hopeful=hopeful))


RULE = rule(
    __name__,
    "the batch is too small for the GPU",
    check,
    needs=("step.time_s", "batch.fixed_share", "gpu.peak_share"),
    explains=("CMP003", "CMP008"),
    thresholds={
        "gain": Threshold(1.20, "times as many samples/s by twice the batch: less is not worth another learning rate"),
        "memory": Threshold(0.45, "of the memory, by tensors: twice as much fits below nine tenths"),
        "activity": Threshold(0.60, "of the SMs: busier ones have no room for more samples at a time"),
    },
)
