"""The batch is past the knee.

What it does: finds batches that fill the memory and would be computed as fast, sample by sample, at half their size.

Why it is slow: it is not; it costs memory and gains nothing. Memory that runs short makes allocations empty the cache (GPU003), and the
next larger picture ends the job.

Evidence: a benchmark of this machine swept batches of this model, or batches of several sizes came by: what doubling the batch gave, as it
was measured, or by a line through the time that each takes to compute; what tensors take of the GPU's memory.

Fix: a smaller batch: of those that were swept the smallest that is as fast, else half of it. The same speed with less memory.

Estimate: none: the speed is the same.

False alarms: a full GPU that computes large batches is as it should be where memory is left: nothing is said then.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import batch_size, by_whom
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    fixed, peak = a.by_rank("batch.fixed_share"), max(a.by_rank("gpu.peak_share").values())
    samples = batch_size(a)
    curve = a.batch_curves.get(min(fixed))
    smaller = max(1, round(samples / 2))
    if curve is not None and curve.covers(curve.batch / 2):
        name, gain = "samples/s by the sweep", 1.0 / curve.gain(curve.batch / 2) - 1.0
        smaller = min(smaller, round(curve.smaller(near=t["gain"])))
    else:
        # half the batch takes the fixed share longer a sample: so much is what doubling it gave
        name, gain = "batch.fixed_share", max(fixed.values())
    if gain >= t["gain"] or peak < t["memory"]:
        return Clear(RULE.id)
    gave = f"more samples/s is all that doubling the batch to {samples:.0f} gave"
    if gain < 0:
        gave = f"fewer samples/s are what doubling the batch to {samples:.0f} gave"
    return Finding(
        rule=RULE.id,
        title="The batch is past the knee: half of it is as fast, sample by sample",
        severity="info",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=0.0,
        evidence=(
            Evidence(name, gain, "", t["gain"], f"{100 * abs(gain):.0f} % {gave}{by_whom(a, fixed)}"),
            Evidence("gpu.peak_share", peak, "", t["memory"], "of the GPU's memory, what tensors took at most"),
        ),
        fixes=(
            Fix(
                f"batches of {smaller} where memory is wanted: the same speed",
                f"DataLoader(..., batch_size={smaller})",
                where_of(training_loader(a, fixed)),
                "small change",
            ),
        ),
    )


RULE = rule(
    __name__,
    "the batch is past the knee",
    check,
    needs=("step.time_s", "batch.fixed_share", "gpu.peak_share"),
    thresholds={
        "gain": Threshold(0.05, "more samples/s by doubling: less is the noise between runs"),
        "memory": Threshold(0.80, "of the memory, by tensors: below it nobody needs the room"),
    },
)
