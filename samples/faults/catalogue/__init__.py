"""All scenarios, family by family."""

from __future__ import annotations

from samples.faults.catalogue import (
    computing,
    course,
    devices,
    embeddings,
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
    repeating,
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
    *repeating.SCENARIOS,
    *transforms.SCENARIOS,
    *ranks.SCENARIOS,
    *matrix.SCENARIOS,
    *wire.SCENARIOS,
    *host.SCENARIOS,
    *memory.SCENARIOS,
    *computing.SCENARIOS,
    *embeddings.SCENARIOS,
    *loop.SCENARIOS,
    *start.SCENARIOS,
    *course.SCENARIOS,
    *endings.SCENARIOS,
    *gpu.SCENARIOS,
    *devices.SCENARIOS,
)
