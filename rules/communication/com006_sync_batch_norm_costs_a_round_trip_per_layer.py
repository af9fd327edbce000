"""SyncBatchNorm costs a round trip per layer.

What it does: finds batch norm that is synchronised between ranks although each rank's batch is large enough for statistics of its own.

Why it is slow: each such layer gathers its statistics from all ranks in the forward pass and sums their gradients in the backward pass.
Both block: nothing can be computed until the slowest rank has answered. ResNet50 has 53 of these layers, so 106 round trips a step.

Evidence: collectives that SyncBatchNorm calls in a step, the batch per rank, and the time for which they hold the rank that is held
shortest (where the call blocks the host; on GPUs the calls are only queued, and their number alone is known).

Fix: plain BatchNorm from a batch of 32 per rank on: leave out `convert_sync_batchnorm`. Watch the validation accuracy of the first epochs.

Estimate: the time of these collectives without any waiting for a late rank; at best with it what a rank's computing waits for a core, which
the threads that answer for each layer take from it, and caches that stay warm.

False alarms: small batches per rank (detection, segmentation) need it; below 32 nothing is said. A late rank is waited for in these layers,
but would be waited for elsewhere without them.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Of these waits, what returns at the exchange of gradients. In three pairs of runs none did: 1.03 to 1.21 of them were gone.
_WORST = 1 / 3
# Of these waits, what the threads that answer take from computing: with 24 layers and two ranks on two cores, computing waited 0.14 of them
# for a core, and hardly without them. What it waits beyond that is somebody else's doing.
_TAKEN = 0.15


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    calls, step = max(a.by_rank("collectives.norm_calls").values()), a.value("step.time_s")
    batches = max([*a.by_rank("step.batches").values(), 1.0])
    batch = a.value("step.samples") / batches
    if calls < t["calls"] or batch < t["batch"]:
        return Clear(RULE.id)
    model, spent = model_of(a), a.get("collectives.norm_s")
    level = severity((spent or 0.0) / step)
    if spent is not None and (level is None or spent < t["share"] * step):
        return Clear(RULE.id)
    held = (
        () if spent is None else (Evidence("collectives.norm_s", spent, "s", t["share"] * step, _share(spent, step)),)
    )
    worst = max(step - (1.0 - _WORST) * (spent or 0.0), 1e-9)
    return Finding(
        rule=RULE.id,
        title="Batch norm is synchronised between ranks, layer by layer",
        severity=level or "low",
        confidence=confidence(a, cap=0.9 if spent is not None else 0.6),
        seconds_per_step=spent or 0.0,
        evidence=(
            *held,
            Evidence("collectives.norm_calls", calls, "calls", t["calls"], "in each step, to synchronise batch norm"),
            Evidence("step.samples", batch, "samples", t["batch"], "of one rank: enough for statistics of its own"),
        ),
        fixes=(
            Fix(
                "plain BatchNorm: leave out SyncBatchNorm.convert_sync_batchnorm",
                "without the call to torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)",
                None,
                "one line",
            ),
        ),
        saving=None if spent is None else model.saving(_at_best(a, spent), worst, "no collectives of batch norm"),
    )


def _at_best(a: Analysis, spent_s: float) -> float:
    """The step without these collectives, and without what their threads take from computing."""
    model, delays = model_of(a), a.by_rank("step.run_delay_s")
    waits_s = min((delays.get(rank, 0.0) for rank in model.own), default=0.0)
    return model.at_best(max(a.value("step.time_s") - spent_s - min(waits_s, _TAKEN * spent_s), 1e-9))


def _share(spent: float, step: float) -> str:
    return f"{100 * spent / step:.0f} % of the step in them, without waiting for a late rank"


RULE = rule(
    __name__,
    "SyncBatchNorm costs a round trip per layer",
    check,
    needs=("step.time_s", "step.samples", "collectives.norm_calls"),
    explains=("COM001",),
    thresholds={
        "calls": Threshold(2.0, "one layer calls once forward and once backward"),
        "batch": Threshold(32.0, "samples of one rank: from there on its own statistics are as good for ResNets"),
        "share": Threshold(0.05, "of the step: less is not worth changing how a model trains"),
    },
)
