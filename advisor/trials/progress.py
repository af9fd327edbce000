"""How fast a job trains, window by window, on the clock of its own computing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import FLAG_TAIL


@dataclass(frozen=True, slots=True)
class RankProgress:
    """The work of one rank: samples (steps where no loader told them) done until each of these seconds of training.

    Evaluations and checkpoints are left out of the clock: the two jobs that are compared do not come to them at the same time.
    """

    seconds: NDArray[np.float64]  # rising; the first is 0
    work: NDArray[np.float64]

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Work done by then; within a step it rises evenly."""
        return np.interp(seconds, self.seconds, self.work)


@dataclass(frozen=True, slots=True)
class Progress:
    """All ranks that trained."""

    ranks: tuple[RankProgress, ...]
    step_s: float  # median of the slowest rank
    in_samples: bool

    @property
    def trained_s(self) -> float:
        """Seconds that every rank has trained."""
        return min(float(rank.seconds[-1]) for rank in self.ranks)

    def rates(self, begin_s: float, window_s: float) -> list[float]:
        """Work per second of all ranks in each whole window of this length from `begin_s` on."""
        whole = int((self.trained_s - begin_s) / window_s + 1e-9)
        if whole < 1:
            return []
        edges = np.asarray(begin_s + window_s * np.arange(whole + 1), np.float64)
        done = np.sum([np.diff(rank.at(edges)) for rank in self.ranks], axis=0)
        return [float(work) / window_s for work in done]


def progress_of(recording: Recording, *, skip_steps: int = 0) -> Progress | None:
    """The progress of a recording without its first steps; None if a rank has none beyond them."""
    tables = [_trained(rows, skip_steps) for rows in recording.steps.values()]
    if not tables or any(len(rows) < 2 for rows in tables):
        return None
    in_samples = all(rows["samples"].sum() > 0 for rows in tables)
    lengths = [_seconds(rows) for rows in tables]
    ranks = tuple(
        RankProgress(
            np.concatenate([[0.0], np.cumsum(seconds)]),
            np.concatenate([[0.0], np.cumsum(rows["samples" if in_samples else "count"].astype(np.float64))]),
        )
        for rows, seconds in zip(tables, lengths, strict=True)
    )
    step_s = max(
        float(np.median(seconds / np.maximum(rows["count"], 1))) for rows, seconds in zip(tables, lengths, strict=True)
    )
    return Progress(ranks, step_s, in_samples)


def _trained(rows: Table, skip_steps: int) -> Table:
    kept: Table = rows[((rows["flags"] & FLAG_TAIL) == 0) & (rows["step"] >= skip_steps)]
    return kept


def _seconds(rows: Table) -> NDArray[np.float64]:
    """Of each row, from the end of the one before, so that no time is lost between them."""
    ends = rows["t_end_ns"].astype(np.float64)
    begins = np.concatenate([[float(rows["t_start_ns"][0])], ends[:-1]])
    seconds = (ends - begins - rows["evaluation_ns"] - rows["checkpoint_ns"]) / 1e9
    return np.asarray(np.maximum(seconds, 1e-9), np.float64)
