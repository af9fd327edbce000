"""Finds ranks that clearly differ from the rest and keep it waiting: a single rank, or all ranks of a bad host; and uneven batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Fix
from rn50_advisor.advisor.model.measures.comm_measures import COMM_KEPT_WAITING_S, COMM_LATE_SHARE
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.analysis_reading import model_of, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import confidence

# Share of the waiting. Several slow ranks are last in turn and by little, so that none is clearly the last, but together
# they cause nearly all of the waiting. One rank alone caused 0.87 to 1.0 of it.
_SKEW_SHARE_MIN = 0.85


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The data in the training batches of one rank: mean bytes, and their standard deviation relative to it."""

    mean_bytes: float
    scatter: float
    looks: int  # batches


def apart(by_rank: Mapping[int, float], beyond: Callable[[float, float], bool]) -> tuple[tuple[int, ...], float]:
    """(the rank with the most and those as clearly `beyond` the median of the rest, that median): at most half of the ranks."""
    ordered = sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))
    count = 1
    while count < len(ordered) // 2 and beyond(by_rank[ordered[count]], _usual(by_rank, ordered[count + 1 :])):
        count += 1
    return tuple(sorted(ordered[:count])), _usual(by_rank, ordered[count:])


def last_share(a: Analysis, ranks: tuple[int, ...], enough: float) -> float:
    """Share of the steps in which one of these ranks comes last by a clear margin; at least `enough` if nearly all waiting is for them.

    Workers that cannot keep up deliver in waves: their rank is late in one step of as many as it has workers, and then by all of it.
    """
    late, kept = a.by_rank(COMM_LATE_SHARE), a.by_rank(COMM_KEPT_WAITING_S)
    share, waited = sum(late.get(rank, 0.0) for rank in ranks), sum(kept.values())
    if waited > 0 and sum(kept.get(rank, 0.0) for rank in ranks) >= _SKEW_SHARE_MIN * waited:
        return max(share, enough)
    return share


def sure(a: Analysis, share: float) -> float:
    """Confidence in a culprit that is last, or causes the waiting, to this share: by chance each of two ranks has half."""
    return confidence(a, cap=round(0.55 + 0.4 * min(1.0, share), 2))


def since(a: Analysis, ranks: tuple[int, ...]) -> int | None:
    """The step at which one of these ranks became slower, if it did so during the run and stayed slow."""
    return next((change.step for change in a.changes if change.rank in ranks and change.until_s is None), None)


def named(ranks: tuple[int, ...]) -> tuple[str, str]:
    """(`rank 1`, the `s` that its verbs end with), or (`ranks 2–5`, nothing)."""
    return (f"rank {ranks[0]}", "s") if len(ranks) == 1 else (f"ranks {numbers(ranks)}", "")


def batch_sizes(a: Analysis) -> dict[int, BatchSize]:
    """By rank; without ranks whose batches were not seen or hold no tensors."""
    found = {}
    for rank in model_of(a).own:
        sums = facts_of(a, rank).get("batch_sizes")
        if sums and sums["bytes"]:
            mean = sums["bytes"] / sums["looks"]
            variance = max(0.0, sums["squares"] / sums["looks"] / mean**2 - 1.0)
            found[rank] = BatchSize(mean, math.sqrt(variance), sums["looks"])
    return found


def even_batches(a: Analysis) -> tuple[Fix, ...]:
    """What gives all ranks batches of similar size in the same step, at the line of the loader."""
    where = where_of(training_loader(a, dict.fromkeys(model_of(a).own, 0.0)))
    return (
        Fix(
            "distribute batches of similar size over the ranks in turn",
            "a batch sampler over the whole data set: sort by size, cut into batches, rank r of n takes r, r + n, …",
            where,
            "small change",
        ),
        Fix("or fill each batch up to a number of tokens instead of samples", "", where, "small change"),
    )


def _usual(by_rank: Mapping[int, float], ranks: list[int]) -> float:
    return float(median(by_rank[rank] for rank in ranks))
