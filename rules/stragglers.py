"""Which ranks stand apart from the rest, and whether it is they whom the rest waits for: one rank, or those of a bad host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.rule import confidence

# Of the waiting. Several slow ranks are last by turns and by little, so that none of them is clearly the last: that they cause nearly
# all of the waiting tells of them. One rank alone caused 0.87 to 1.0 of it.
_NEARLY_ALL = 0.85
# Of the wire's time, which is without waiting for late ranks: what makes ranks late must cost nearly as much to be its reason. A quota on
# one rank, which held the threads of its exchange back too, cost three times as much as the wire.
_OF_THE_WIRE = 0.8


def apart(by_rank: Mapping[int, float], beyond: Callable[[float, float], bool]) -> tuple[tuple[int, ...], float]:
    """(the rank with the most and those as clearly `beyond` the median of the rest, that median): at most half of the ranks."""
    ordered = sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))
    count = 1
    while count < len(ordered) // 2 and beyond(by_rank[ordered[count]], _usual(by_rank, ordered[count + 1 :])):
        count += 1
    return tuple(sorted(ordered[:count])), _usual(by_rank, ordered[count:])


def last_share(a: Analysis, ranks: tuple[int, ...], enough: float) -> float:
    """Of the steps, in how many one of these ranks comes last by a clear margin; at least `enough` where nearly all waiting is for them."""
    late, kept = a.by_rank("comm.late_share"), a.by_rank("comm.kept_waiting_s")
    share, waited = sum(late.get(rank, 0.0) for rank in ranks), sum(kept.values())
    if len(ranks) > 1 and waited > 0 and sum(kept.get(rank, 0.0) for rank in ranks) >= _NEARLY_ALL * waited:
        return max(share, enough)
    return share


def sure(a: Analysis, theirs: float) -> float:
    """Confidence in a culprit that is the last, or causes the waiting, to this share: by chance two ranks come to half each."""
    return confidence(a, cap=round(0.55 + 0.4 * min(1.0, theirs), 2))


def slows_the_wire(a: Analysis, lost_s: float) -> tuple[str, ...]:
    """What a finding that costs so much explains of the wire: nothing, where the wire costs more by itself."""
    return ("COM001",) if lost_s >= _OF_THE_WIRE * (a.get("comm.wire_s") or 0.0) else ()


def since(a: Analysis, ranks: tuple[int, ...]) -> int | None:
    """The step from which on one of these ranks became slower, where it did so during the run and stayed so."""
    return next((change.step for change in a.changes if change.rank in ranks and change.until_s is None), None)


def named(ranks: tuple[int, ...]) -> tuple[str, str]:
    """(`rank 1`, the `s` that its verbs end with), or (`ranks 2–5`, nothing)."""
    return (f"rank {ranks[0]}", "s") if len(ranks) == 1 else (f"ranks {numbers(ranks)}", "")


def _usual(by_rank: Mapping[int, float], ranks: list[int]) -> float:
    return float(median(by_rank[rank] for rank in ranks))
