"""The benchmark for programs: the contract `rn50-advisor/bench/1`, keys always in the same order."""

from __future__ import annotations

import json

from rn50_advisor.advisor.model.documents.benchmark import Benchmark


def render(benchmark: Benchmark) -> str:
    """Valid JSON in plain ASCII, so that any locale and any bytes in names survive."""
    return json.dumps(benchmark.as_json(), indent=2, allow_nan=False)
