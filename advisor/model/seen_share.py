"""The share of the training that was seen: steps, and batches without a backward pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of the rank that was seen best, since the start of its first step."""

    steps: int
    total_s: float
    unseen_batches: int  # fetched after the first step, met by no backward, and not known to be evaluated
    unseen_s: float  # while these were fetched and whatever was done with them
    after_s: float  # after all that, without a fetch, an evaluation or a checkpoint that was seen

    @property
    def seen_s(self) -> float:
        return max(0.0, self.total_s - self.unseen_s - self.after_s)
