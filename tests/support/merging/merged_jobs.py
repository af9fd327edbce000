"""Jobs of four ranks, and changes to their launcher's environment variables. Not a test."""

from __future__ import annotations

from dataclasses import replace

from recordings import plan
from rn50_advisor.advisor.model.recording import Recording


def four_ranks(slow: int | None = None, steps: int = 40) -> dict[int, list[dict[str, float]]]:
    return {rank: plan(steps, forward=60 if rank == slow else 30) for rank in range(4)}


def with_launcher_variables(own: Recording, change: dict[str, str]) -> Recording:
    return replace(
        own, facts={p: {"environment_rank": {**f["environment_rank"], **change}} for p, f in own.facts.items()}
    )
