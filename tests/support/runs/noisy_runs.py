"""Runs whose steps vary as real ones do: from step to step, slowly, and from run to run. Not a test."""

from __future__ import annotations

from typing import Any

import numpy as np

from recordings import recording, step
from rn50_advisor.advisor.model.documents.comparison import Pair
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.run_comparison import Run, compare, load

PHASES = ("input_wait", "forward", "backward", "optimizer")


def noisy_plan(
    seed: int, steps: int = 120, *, scale: float = 1.0, slow_noise: float = 0.03, own_noise: float = 0.0, **given: float
) -> list[dict[str, float]]:
    """Steps of about 100 ms; four fifths of the slow noise carry over from one step to the next."""
    random = np.random.default_rng(seed)
    run = scale * float(np.exp(random.normal(0.0, own_noise)))
    mood, plan = 0.0, []
    for _ in range(steps):
        mood = 0.8 * mood + 0.6 * float(random.normal(0.0, slow_noise))
        factor = run * max(0.2, 1.0 + mood + float(random.normal(0.0, 0.02)))
        made = step(**given)
        plan.append({name: value * factor if name in PHASES else value for name, value in made.items()})
    return plan


def noisy_run(name: str, seed: int, *, ranks: int = 1, facts: dict[str, Any] | None = None, **given: Any) -> Run:
    return load(name, noisy_recording(seed, ranks=ranks, facts=facts, **given), place=seed)


def noisy_recording(
    seed: int, *, ranks: int = 1, facts: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, **given: Any
) -> Recording:
    plan = noisy_plan(seed, **given)
    about = {100 + rank: facts or {} for rank in range(ranks)}
    return recording(dict.fromkeys(range(ranks), plan), facts=about, meta=meta)


def pair_of(*runs: Run, **given: Any) -> Pair:
    return compare(runs, **given).pairs[0]
