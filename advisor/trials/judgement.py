"""Judges a trial by its pairs: faster, no gain or undecided, with an interval that holds for repeated looks and several fixes.

The pairs are looked at up to three times. At each look the interval of Student's t is drawn; the chance of error is divided equally over
the looks and over the fixes tried (Bonferroni), which holds however looks depend on each other. Bounds in O'Brien and Fleming's way would
spend nearly nothing on the first look: with three degrees of freedom no fix could ever pass it. Where one pair lies far from the others (a
stall on one side), the largest and the smallest eighth of the pairs are trimmed.

Simulated, 4000 trials of one fix for each line of `NOISES` in its test: blocks in the order without, with, with, without the change, each
off by 1, 3 or 5 %, independently (normal, Student's t with three degrees of freedom, every tenth stalled) or like the block before (AR(1)
with 0.3, 0.6, 0.9). Of changes without effect at most 0.45 % were called faster. Of changes by 1.10×, with blocks off by 3 %, 93 % or more
were found within 8 pairs, 87 % with stalls. Of the trials that stopped at a look where a tenth of all did, the interval held the truth in
95 % or more; those that stop where few do are the ones that chance misleads: 88 % at worst.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from rn50_advisor.advisor.model.trials import NO_GAIN, MeasuredSpeedup, Outcome
from rn50_advisor.advisor.model.wording import quantities as fmt

LOOKS = (4, 8, 16)  # numbers of pairs
NARROW = 0.07  # half width, as a share, at which a faster one needs no further pairs
# Chance that a change without effect is called faster, over all looks and fixes; and, up to each look, that a gain beyond NO_GAIN is
# called none. The second costs a user little: it is not divided by the number of fixes, and left for the end, as a trial that is ended
# early by chance is also the one whose interval is wrong.
_FALSE_GAIN = 0.01
_MISSED_GAIN = {4: 0.005, 8: 0.01, 16: 0.025}
_HALF_WIDTH_MIN = 0.01  # logarithm; pairs can agree by chance
# The edited file runs in other processes than the trial did, and these differ in what the change does to them: one change of affinity made
# three processes 1.69, 1.63 and 1.58 times as fast (11 to 13 blocks each). Trials against the edited file, as logarithms of the gain: 0.577
# and 0.519, 0.524 and 0.460, 1.183 and 1.236, 0.473 and 0.468. A share of the logarithm, and the most of it.
_PROCESSES_SHARE, _PROCESSES_MAX = 0.125, 0.065
_APART = 4.0  # robust standard deviations from the median, from which on a pair is a stall and no noise
_TRIMMED_MIN = 8  # pairs; one in so many is trimmed at either end
_PAIRS_MAX = 500  # more than that nobody waits for


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """`reason`: by how much it is slower, or what a decision would take. `go_on`: false where further pairs would change nothing."""

    outcome: Outcome
    measured: MeasuredSpeedup | None
    reason: str
    go_on: bool


def judge(
    log_ratios: Sequence[float], *, comparisons: int = 1, shared_sd: float = 0.0, pair_s: float | None = None
) -> PairJudgement:
    """Judges logarithms of seconds per sample without the change over seconds with it, one a pair.

    `comparisons`: fixes that are tried. `pair_s`: what a pair takes. `shared_sd`: standard deviation of what all pairs share and no
    number of them shows, as of two processes that ran through all pairs. A ResNet18 on two cores against itself, in turns of half a second:
    means of eight pairs were -0.09, 0.05, 0.08 and 0.18; in blocks of one process -0.001 (50 pairs).
    With pairs between two looks the answer is that of the last look: it holds if the time was over, not if one looks at every pair.
    """
    pairs, last = len(log_ratios), LOOKS[-1]
    if pairs < LOOKS[0]:
        return PairJudgement("undecided", None, f"{fmt.counted(pairs, 'pair')} of at least {LOOKS[0]}", True)
    spread = _spread(log_ratios)
    claimed = _interval(spread, pairs, _FALSE_GAIN / len(LOOKS) / max(1, comparisons), shared_sd)
    look = next((look for look in LOOKS if look >= pairs), last)
    absent = _interval(spread, pairs, _MISSED_GAIN[look], shared_sd)
    if absent.hi <= 1.0 + NO_GAIN:
        return PairJudgement("no_gain", absent, _loss(absent), False)
    if claimed.lo > 1.0:
        wide = (claimed.hi - claimed.lo) / 2.0 > NARROW * claimed.speedup
        return PairJudgement("faster", claimed, "", wide and pairs < last)
    more = _missing_pairs(spread, pairs, max(1, comparisons), shared_sd)
    return PairJudgement("undecided", claimed, _needed(more, pair_s), pairs < last)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Mean of the logarithms, the error of the mean, and its degrees of freedom."""

    mean: float
    error: float
    freedom: int


def _spread(values: Sequence[float]) -> _Spread:
    """Of all pairs, or, where one is far from the others, of those within trimmed ends (Yuen and Dixon 1973)."""
    count = len(values)
    middle = median(values)
    usual = 1.4826 * median(abs(value - middle) for value in values)
    stalled = max(abs(value - middle) for value in values) > _APART * usual
    trimmed = count // _TRIMMED_MIN if stalled else 0
    ordered = sorted(values)
    kept = ordered[trimmed : count - trimmed]
    drawn_in = [*[kept[0]] * trimmed, *kept, *[kept[-1]] * trimmed]
    centre = math.fsum(drawn_in) / count
    sd = math.sqrt(math.fsum((value - centre) ** 2 for value in drawn_in) / (count - 1))
    error = sd / ((1.0 - 2.0 * trimmed / count) * math.sqrt(count))
    return _Spread(math.fsum(kept) / len(kept), error, len(kept) - 1)


def _interval(spread: _Spread, pairs: int, beyond: float, shared_sd: float) -> MeasuredSpeedup:
    """`beyond`: the chance that the truth lies beyond one end. Ends are rounded outwards to what is shown, so that both say the same."""
    own = student(beyond, spread.freedom) * spread.error
    processes = min(_PROCESSES_MAX, _PROCESSES_SHARE * abs(spread.mean))
    half = max(_HALF_WIDTH_MIN, processes, math.hypot(own, _normal(beyond) * shared_sd))
    lo, hi = math.exp(spread.mean - half), math.exp(spread.mean + half)
    return MeasuredSpeedup(
        math.exp(spread.mean), math.floor(round(100.0 * lo, 6)) / 100.0, math.ceil(round(100.0 * hi, 6)) / 100.0, pairs
    )


def _loss(found: MeasuredSpeedup) -> str:
    if found.hi < 1.0:
        return f"{_percent(1.0 - found.hi)}–{_percent(1.0 - found.lo)} % slower"
    return "" if found.lo >= 1.0 - NO_GAIN else f"perhaps up to {_percent(1.0 - found.lo)} % slower"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f}"


def _missing_pairs(spread: _Spread, pairs: int, comparisons: int, shared_sd: float) -> int | None:
    """How many more pairs, as noisy as these, would decide; None if no number would, or far too many."""
    sd, shown = spread.error * math.sqrt(pairs), 0.01  # the last: ends are rounded to it

    def wanted(beyond: float, distance: float) -> float:
        room = distance**2 - (_normal(beyond) * shared_sd) ** 2
        if distance <= _HALF_WIDTH_MIN or room <= 0.0:
            return math.inf
        return (student(beyond, LOOKS[-1] - 1) * sd) ** 2 / room

    to_claim = wanted(_FALSE_GAIN / len(LOOKS) / comparisons, spread.mean - shown)
    to_rule_out = wanted(_MISSED_GAIN[LOOKS[-1]], math.log(1.0 + NO_GAIN) - spread.mean)
    least = min(to_claim, to_rule_out)
    return max(1, math.ceil(least) - pairs) if least <= _PAIRS_MAX else None


def _needed(more: int | None, pair_s: float | None) -> str:
    if more is None:
        return "too small a difference to tell from chance"
    time = f" ({fmt.duration(more * pair_s)})" if pair_s else ""
    return f"about {fmt.counted(more, 'more pair')}{time} would decide"


def _normal(beyond: float) -> float:
    return NormalDist().inv_cdf(1.0 - beyond)


@functools.lru_cache(maxsize=256)
def student(beyond: float, freedom: int) -> float:
    """The quantile of Student's t that is exceeded with this chance, of at most a half; accurate to 1e-9."""
    high = 1.0
    while _exceeded(high, freedom) > beyond:
        high *= 2.0
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if _exceeded(middle, freedom) > beyond else (low, middle)
    return high


def _exceeded(t: float, freedom: int) -> float:
    """The chance that Student's t exceeds `t` >= 0, by its finite sums (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine_2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for number in range(3 if odd else 2, freedom, 2):
        term *= cosine_2 * (number - 1) / number
        total += term
    if freedom == 1:
        total = 0.0
    inside = 2.0 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 * (1.0 - inside)
