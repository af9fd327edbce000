"""SyncBatchNorm overhead.

What it does: finds batch norm that is synchronised between ranks although each rank's batch is large enough for
per-rank statistics.

Fires when: collectives of synchronised batch norm take ≥ 5 % of the step, with ≥ 32 samples on each rank; on GPUs a note.

Why it is slow: each such layer gathers its statistics from all ranks in the forward pass and sums their gradients in
the backward pass. Both block: nothing can be computed until the slowest rank has answered. ResNet50 has 53 of these
layers, so 106 round trips a step.

Evidence: the number of collectives that SyncBatchNorm calls in a step, the batch per rank, and the time spent in them
by the rank that waits least (if the call blocks the host; on GPUs the calls are only queued, and only their number is
known).

Fix: plain BatchNorm from a batch of 32 per rank on: leave out `convert_sync_batchnorm`. Watch the validation accuracy
of the first epochs.

Estimate: the time of these collectives, excluding the wait for a straggler. At best computing also no longer waits for
cores that the threads answering for each layer occupy, and the caches stay warm. The step gets no shorter than loading
needs.

False alarms: small batches per rank (detection, segmentation) need it; below 32 the rule stays silent. Ranks wait for a
late rank in these layers, but without them they would wait for it elsewhere. If batches come too slowly, the step waits for
them with or without these layers.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.job_changes import CallRemoval
from rn50_advisor.advisor.model.measures.comm_measures import COLLECTIVES_NORM_CALLS, COLLECTIVES_NORM_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_RUN_DELAY_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import loading_floor_s
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of these waits that moves to the gradient exchange. In three pairs of runs none did: steps lost 1.03 to 1.21 of them.
_RETURNING_SHARE_MAX = 1 / 3
# Share of these waits in which answering threads take cores: with 24 layers and two ranks on two cores, compute waited 0.14 of them
# for a core, and hardly without them. Waiting beyond that has other causes.
_COMPUTE_TAKEN_SHARE = 0.15


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    calls, step = max(a.by_rank(COLLECTIVES_NORM_CALLS).values()), a.value(STEP_TIME_S)
    batches = max([*a.by_rank(STEP_BATCHES).values(), 1.0])
    batch = a.value(STEP_SAMPLES) / batches
    if calls < t["calls"] or batch < t["batch"]:
        return Clear(RULE.id)
    model, spent = model_of(a), a.get(COLLECTIVES_NORM_S)
    floor_s = loading_floor_s(a, hopeful=False)
    spared = min(spent or 0.0, step - floor_s)
    level = severity(spared / step)
    if spent is not None and (level is None or spared < t["share"] * step):
        return Clear(RULE.id)
    held = () if spent is None else (Evidence.of(COLLECTIVES_NORM_S, spent, t["share"] * step, _share(spent, step)),)
    worst = max(step - (1.0 - _RETURNING_SHARE_MAX) * (spent or 0.0), floor_s, 1e-9)
    return Finding(
        rule=RULE.id,
        title="SyncBatchNorm: one round trip per layer",
        severity=level or "low",
        confidence=confidence(a, cap=0.9 if spent is not None else 0.6),
        seconds_per_step=spared,
        evidence=(
            *held,
            Evidence.of(
                COLLECTIVES_NORM_CALLS, calls, t["calls"], "in each step, to synchronise batch norm", form="explains"
            ),
            Evidence.of(
                STEP_SAMPLES, batch, t["batch"], "of one rank: enough for per-rank statistics", form="explains"
            ),
        ),
        fixes=(
            Fix.of(
                "plain BatchNorm: leave out SyncBatchNorm.convert_sync_batchnorm",
                CallRemoval("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "model"),
                None,
                "one line",
            ),
        ),
        saving=None if spent is None else model.saving(_at_best(a, spent), worst, "no collectives of batch norm"),
    )


def _at_best(a: Analysis, spent_s: float) -> float:
    """The step without these collectives, and without the time that their threads take from computing."""
    model, delays = model_of(a), a.by_rank(STEP_RUN_DELAY_S)
    waits_s = min((delays.get(rank, 0.0) for rank in model.own), default=0.0)
    after_s = a.value(STEP_TIME_S) - spent_s - min(waits_s, _COMPUTE_TAKEN_SHARE * spent_s)
    return model.at_best(max(after_s, loading_floor_s(a, hopeful=True), 1e-9))


def _share(spent: float, step: float) -> str:
    return f"{100 * spent / step:.0f} % of the step, excluding the wait for a straggler"


RULE = rule(
    __name__,
    "SyncBatchNorm overhead",
    check,
    needs=(STEP_TIME_S, STEP_SAMPLES, COLLECTIVES_NORM_CALLS),
    thresholds={
        "calls": Threshold(2.0, "one layer calls once forward and once backward"),
        "batch": Threshold(32.0, "samples per rank: from there on, per-rank statistics are as good for ResNets"),
        "share": Threshold(0.05, "of the step: below it the gain does not justify changing how a model trains"),
    },
)
