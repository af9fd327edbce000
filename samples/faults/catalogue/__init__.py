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
    gradients,
    healthy,
    host,
    loading,
    loop,
    matrix,
    memory,
    own_code,
    ranks,
    reading,
    repeating,
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
    *gradients.SCENARIOS,
    *computing.SCENARIOS,
    *embeddings.SCENARIOS,
    *loop.SCENARIOS,
    *own_code.SCENARIOS,
    *course.SCENARIOS,
    *endings.SCENARIOS,
    *gpu.SCENARIOS,
    *devices.SCENARIOS,
)
