"""Ranks that loader workers feed, and the forecast for them. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerFeed, WorkerModel, forecast

# rank 0 computes 100 ms from batch to batch and waits 60 ms for a batch that takes 160 ms to make
FEED = WorkerFeed(workers=1, computing_s=(0.16,), waiting_s=(0.0,), rest_s=(0.1,))
OWN = {"input_wait": 0.06, "forward": 0.04, "backward": 0.05, "optimizer": 0.01}
STEP = StepModel(0.16, {0: OWN})


def played(feed: WorkerFeed = FEED, step: StepModel = STEP, **model: Any) -> Forecast:
    found = forecast(WorkerModel(step, dict.fromkeys(step.own, feed), **model))
    assert found is not None
    return found


def spread(times: tuple[float, ...]) -> WorkerFeed:
    return replace(FEED, computing_s=times, waiting_s=(0.0,) * len(times))
