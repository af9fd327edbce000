"""All scenarios, family by family."""

from __future__ import annotations

from samples.faults.catalogue import (
    course,
    devices,
    endings,
    feeding,
    gpu,
    healthy,
    host,
    loading,
    loop,
    matrix,
    memory,
    ranks,
    reading,
    start,
    transforms,
    wire,
)
from samples.faults.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *healthy.SCENARIOS,
    *loading.SCENARIOS,
    *feeding.SCENARIOS,
    *reading.SCENARIOS,
    *transforms.SCENARIOS,
    *ranks.SCENARIOS,
    *matrix.SCENARIOS,
    *wire.SCENARIOS,
    *host.SCENARIOS,
    *memory.SCENARIOS,
    *loop.SCENARIOS,
    *start.SCENARIOS,
    *course.SCENARIOS,
    *endings.SCENARIOS,
    *gpu.SCENARIOS,
    *devices.SCENARIOS,
)
# More of kinds that others show already: with them the whole takes longer than an hour on two cores.
VARIANTS = frozenset(
    (
        *(scenario.name for scenario in matrix.SCENARIOS),
        "in-process-stream",
        "in-process-images",
        "one-worker-and-evaluation",
        "too-few-workers-for-a-stream-in-batches",
        "slow-sampler-for-workers",
        "loader-made-anew",
        "order-before-workers-that-live-on",
        "workers-for-small-tensors",
        "limit-on-the-number-of-reads",
        "limit-on-the-number-of-reads-a-little",
        "number-of-reads-that-suffices",
        "samples-of-a-server-that-answers-all",
        "one-transform-dominates-two-ranks",
        "slow-data-on-the-first-rank-with-workers",
        "slow-rank-without-a-loader",
        "evaluation-without-a-loader",
        "slower-wire-accumulating",
        "slow-wire-resnet18",
        "gradients-averaged-by-hand",
        "histograms-before-the-update",
        "histograms-seldom-before-the-update",
    )
)
