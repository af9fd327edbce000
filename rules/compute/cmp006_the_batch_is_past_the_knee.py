"""Batch past the point of diminishing returns.

What it does: finds batches that fill the memory although batches of half their size would be as fast per sample.

Fires when: memory is nearly full, and half the batch would be as fast per sample; a note.

Why it is slow: it is not; it costs memory and gains nothing. When memory runs short, allocations empty the cache
(GPU003), and the next larger image ends the job.

Evidence: what doubling the batch gained, either measured by a benchmark of this machine that swept batch sizes of this
model, or from a line through the compute times of batches of several sizes in the run; the share of the GPU's memory
that tensors take.

Fix: a smaller batch: the smallest swept size that is as fast, else half of today's. The speed stays the same, with less
memory.

Estimate: none: the speed is the same.

False alarms: a busy GPU that computes large batches is as it should be if memory is left: then the rule stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_PEAK_SHARE
from rn50_advisor.advisor.model.measures.input_measures import BATCH_FIXED_SHARE
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import batch_size, timing_source
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    fixed, peak = a.by_rank(BATCH_FIXED_SHARE), max(a.by_rank(GPU_PEAK_SHARE).values())
    samples = batch_size(a)
    curve = a.batch_curves.get(min(fixed))
    smaller = max(1, round(samples / 2))
    if curve is not None and curve.covers(curve.batch / 2):
        name, gain = "samples/s by the sweep", 1.0 / curve.gain(curve.batch / 2) - 1.0
        smaller = min(smaller, round(curve.smaller(near=t["gain"])))
    else:
        # with half the batch a sample takes longer by the fixed share: that is what doubling gained
        name, gain = BATCH_FIXED_SHARE, max(fixed.values())
    if gain >= t["gain"] or peak < t["memory"]:
        return Clear(RULE.id)
    change = f"{'fewer' if gain < 0 else 'more'} samples/s after doubling the batch to {samples:.0f}"
    return Finding(
        rule=RULE.id,
        title="Batch past the point of diminishing returns: half of it is as fast per sample",
        severity="info",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=0.0,
        evidence=(
            Evidence(name, gain, "", t["gain"], f"{100 * abs(gain):.0f} % {change}{timing_source(a, fixed)}"),
            Evidence.of(
                GPU_PEAK_SHARE,
                peak,
                t["memory"],
                "of GPU memory is taken by tensors at the peak",
                form="continues",
            ),
        ),
        fixes=(
            Fix.of(
                f"batches of {smaller} if you need the memory: the speed stays the same",
                CallChange.of("DataLoader", batch_size=smaller),
                where_of(training_loader(a, fixed)),
                "small change",
            ),
        ),
    )


RULE = rule(
    __name__,
    "Batch past the point of diminishing returns",
    check,
    severities=("info",),
    needs=(STEP_TIME_S, BATCH_FIXED_SHARE, GPU_PEAK_SHARE),
    thresholds={
        "gain": Threshold(0.05, "more samples/s by doubling the batch: less is noise between runs"),
        "memory": Threshold(0.80, "of the memory, by tensors: below it there is memory left"),
    },
)
