"""Jobs of trials that make steps as they are given time to compute. Not a test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recordings import plan, recording
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.trials.keeper import Keeper
from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed

APPLIED = {"applied": [[0, 1]], "refused": [], "switches": []}


@dataclass(frozen=True, slots=True)
class Nature:
    """How the jobs of a command behave."""

    step_ms: float
    steps_max: int = 100_000
    fails_after_s: float = math.inf
    facts: Any = None  # of its rank
    memory_bytes: int = 0


class SimulatedJob:
    """In place of a TrialJob. `natures`: by the first word of the command, `/` and the knob's values; `started`: all that were."""

    natures: dict[str, Nature]
    started: list[str]

    def __init__(self, order: Order, folder: Path, keeper: Keeper | None = None) -> None:
        self.name = "/".join([order.argv[0], *_knobs(order)])
        self.started.append(self.name)
        self.nature = self.natures[self.name]
        self.computed_s = 0.0
        self.family = SimpleNamespace(rest=lambda: None, memory_bytes=lambda: self.nature.memory_bytes)
        self.ended = False

    def computes_for(self, seconds: float) -> bool:
        assert not self.ended
        self.computed_s += seconds
        if self.computed_s > self.nature.fails_after_s:
            raise TrialFailed("the job ended with 1", "RuntimeError: no")
        return self.computed_s * 1e3 < self.nature.steps_max * self.nature.step_ms

    def recording(self) -> Recording | None:
        steps = min(int(self.computed_s * 1e3 / self.nature.step_ms), self.nature.steps_max)
        facts = {100: {"trial": APPLIED, **(self.nature.facts or {})}}
        return recording({0: plan(steps, input_wait=self.nature.step_ms - 90)}, facts=facts) if steps else None

    def last_words(self) -> str:
        return "so it ended"

    def end(self) -> None:
        self.ended = True


def _knobs(order: Order) -> list[str]:
    changes = [
        f"{name}={value}" for one in order.request.get("changes", ()) for name, value in one["arguments"].items()
    ]
    return [*changes, *(f"{name}={value}" for name, value in order.environment.items() if name.isupper())]


def simulation(**natures: Nature) -> type[SimulatedJob]:
    """A class of its own, with `natures` and nothing started yet."""
    return type("Simulation", (SimulatedJob,), {"natures": dict(natures), "started": []})
