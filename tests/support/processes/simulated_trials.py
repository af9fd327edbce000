"""Jobs of trials that make steps as they are given time to compute. Not a test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recordings import recording, step
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.trials.blocks import BlockSchedule
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
        live = order.request.get("live")
        self.schedule = BlockSchedule.of(live) if live else None
        changes = live["variants"][1] if live else order.request.get("changes", ())
        changed = "/".join([order.argv[0], *_knobs(changes, order)])
        self.name = order.argv[0] if live else changed
        self.started.append(f"{changed} switched" if live else changed)
        self.nature = self.natures[self.name]
        self.switched = self.natures.get(changed, self.nature)
        self.computed_s = 0.0
        self.family = SimpleNamespace(rest=self._rest, memory_bytes=lambda: self.nature.memory_bytes)
        self.ended = self.rested = False

    def _rest(self) -> None:
        self.rested = True

    def computes_for(self, seconds: float) -> bool:
        assert not self.ended
        self.computed_s += seconds
        if self.computed_s > self.nature.fails_after_s:
            raise TrialFailed("the job ended with 1", "RuntimeError: no")
        return len(self.steps()) < self.nature.steps_max

    def steps(self) -> list[float]:
        """Milliseconds of each."""
        made: list[float] = []
        left_ms = self.computed_s * 1e3
        while len(made) < self.nature.steps_max:
            block = (len(made) - self.schedule.from_step) // self.schedule.block_steps if self.schedule else 0
            on = self.schedule is not None and self.schedule.variant(block)
            left_ms -= (step_ms := (self.switched if on else self.nature).step_ms)
            if left_ms < 0:
                break
            made.append(step_ms)
        return made

    def recording(self) -> Recording | None:
        facts = {100: {"trial": APPLIED, **(self.switched.facts or {})}}
        steps = [step(input_wait=step_ms - 90) for step_ms in self.steps()]
        return recording({0: steps}, facts=facts) if steps else None

    def last_words(self) -> str:
        return "so it ended"

    def end(self) -> None:
        self.ended = True


def _knobs(changes: Iterable[Mapping[str, Any]], order: Order) -> list[str]:
    values = [f"{name}={value}" for one in changes for name, value in one.get("arguments", {}).items()]
    return [*values, *(f"{name}={value}" for name, value in order.environment.items() if name.isupper())]


def simulation(**natures: Nature) -> type[SimulatedJob]:
    """A class of its own, with `natures` and nothing started yet."""
    return type("Simulation", (SimulatedJob,), {"natures": dict(natures), "started": []})
