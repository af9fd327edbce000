"""The share of the training that the recorder saw: steps, and batches that no backward pass followed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of the rank that was seen best, since the start of its first step."""

    steps: int
    total_s: float
    unseen_batches: int  # fetched after the first step, without a backward pass and not known to be evaluated
    unseen_s: float  # time in which these were fetched and used
    after_s: float  # time at the end without a fetch, an evaluation or a checkpoint that was seen

    @property
    def seen_s(self) -> float:
        return max(0.0, self.total_s - self.unseen_s - self.after_s)
