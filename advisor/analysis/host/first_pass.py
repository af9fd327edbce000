"""The first pass over the data that a process makes: a data set that keeps what it has read grows with it, and no more after it."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import LoaderFacts


@dataclass(frozen=True, slots=True)
class FirstPass:
    """One of the two is known: when it ended, or how long it will go on."""

    ended_ns: int | None
    left_s: float | None


def first_pass(steps: RankSteps, loader: LoaderFacts | None, since_ns: int, *, ranks: int) -> FirstPass | None:
    """Of processes that load for this rank since then. None where nobody knows how long it is: of a stream, or beyond its length."""
    later = steps.start_ns[steps.epoch_start & (steps.start_ns > since_ns)]
    if later.size:
        return FirstPass(int(later[0]), None)
    length = None if loader is None else loader.dataset.get("length")
    rows = steps.start_ns >= (steps.start_ns[steps.epoch_start][-1] if steps.epoch_start.any() else since_ns)
    samples, took_s = float(steps.columns["samples"][rows].sum()), float(steps.length[rows].sum())
    if not isinstance(length, int) or not 0 < samples < length:
        return None
    # each rank has its share, as a rule; one that has gone on beyond it reads it all
    ends = length / ranks if samples < length / ranks else length
    return FirstPass(None, took_s * (ends - samples) / samples)
