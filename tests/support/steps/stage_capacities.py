"""Recordings of jobs that loader workers feed, and the capacities of their stages. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordings import batches, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Capacity

TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}


FEED = {"wall": 80, "cpu": 60, "delay": 10, "wait": 20, "blocks": 200}  # milliseconds a batch; 100 kB read


def evenly(count: int = 28, **given: float) -> list[dict[str, float]]:
    """Batches of two workers in turn, one every 100 ms."""
    return [{**FEED, "start": 0.1 * n, "worker": n % 2, "pid": 200 + n % 2, **given} for n in range(count)]


def fed(rows: list[dict[str, float]], loader: Mapping[str, Any] = TRAIN, **more: Any) -> Recording:
    facts = {100: {"loaders": [dict(loader)], **more.pop("facts", {})}}
    return recording({0: more.pop("own", plan())}, batches={0: batches(rows)}, facts=facts, **more)


def capacity(made: Recording, stage: str) -> Capacity:
    return next(c for c in analyse(made).capacities if c.stage == stage)


def value(made: Recording, stage: str) -> float | None:
    return capacity(made, stage).samples_per_s
