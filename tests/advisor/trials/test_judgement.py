"""The judgement of a trial: simulated error rates with a fixed seed, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rn50_advisor.advisor.model.trials import MeasuredSpeedup
from rn50_advisor.advisor.trials.judgement import LOOKS, NARROW, PairJudgement, judge, student

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Array]  # of so many blocks, standard deviation about 1
TRIALS = 1000


def normal(random: np.random.Generator, blocks: int) -> Array:
    return random.normal(size=blocks)


def heavy(random: np.random.Generator, blocks: int) -> Array:
    return random.standard_t(3, blocks) / math.sqrt(3)


def stalled(random: np.random.Generator, blocks: int) -> Array:
    return 0.5 * random.normal(size=blocks) + (random.random(blocks) < 0.1) * random.exponential(5.0, blocks)


def drifting(memory: float) -> Noise:
    """A block resembles the one before: AR(1)."""

    def made(random: np.random.Generator, blocks: int) -> Array:
        found = random.normal(size=blocks)
        for number in range(1, blocks):
            found[number] = memory * found[number - 1] + math.sqrt(1 - memory**2) * found[number]
        return found

    return made


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails": heavy,
    "stalls": stalled,
    "drift 0.3": drifting(0.3),
    "drift 0.6": drifting(0.6),
    "drift 0.9": drifting(0.9),
}


def pairs_of(blocks: Array, gain: float) -> list[float]:
    """Log ratios of blocks in the order without, with, with, without."""
    first, second = blocks.reshape(-1, 2).T
    without_first = np.arange(first.size) % 2 == 0
    return (np.where(without_first, first - second, second - first) + math.log(gain)).tolist()  # type: ignore[no-any-return]


def played(pairs: list[float], comparisons: int = 1) -> PairJudgement:
    """As `try` does it: looks until nothing more is to be learnt."""
    for look in LOOKS:
        found = judge(pairs[:look], comparisons=comparisons)
        if not found.go_on:
            return found
    raise AssertionError("the last look decides")


def trials(noise: Noise, sd: float, gain: float, *, seed: int = 0) -> list[list[float]]:
    random = np.random.default_rng(seed)
    return [pairs_of(sd * noise(random, 2 * LOOKS[-1]), gain) for _ in range(TRIALS)]


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("sd", [0.01, 0.03, 0.05])
def test_the_same_job_twice_is_no_gain_or_undecided(noise: Noise, sd: float) -> None:
    outcomes = [played(pairs).outcome for pairs in trials(noise, sd, 1.0)]
    assert outcomes.count("faster") <= 0.01 * TRIALS


def test_ten_fixes_without_effect_are_together_called_faster_as_rarely_as_one() -> None:
    made = trials(normal, 0.03, 1.0, seed=1)
    tens = [made[first : first + 10] for first in range(0, TRIALS, 10)]
    faster = [any(played(pairs, comparisons=10).outcome == "faster" for pairs in ten) for ten in tens]
    assert sum(faster) <= 0.02 * len(tens)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_a_gain_of_a_tenth_is_found_within_eight_pairs(noise: Noise) -> None:
    found = [any(judge(pairs[:look]).outcome == "faster" for look in (4, 8)) for pairs in trials(noise, 0.03, 1.1)]
    assert sum(found) >= (0.8 if noise is stalled else 0.9) * TRIALS


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("gain", [0.9, 1.0, 1.03, 1.3])
def test_the_interval_holds_the_truth_wherever_the_trial_stops(noise: Noise, gain: float) -> None:
    held: dict[int, list[bool]] = {look: [] for look in LOOKS}
    for pairs in trials(noise, 0.02, gain, seed=2):
        found = played(pairs).measured
        assert found is not None
        held[found.pairs].append(found.lo <= gain <= found.hi)
    for stopped in held.values():
        assert len(stopped) < 50 or sum(stopped) >= 0.9 * len(stopped)


def test_without_enough_pairs_there_is_no_interval() -> None:
    assert judge([0.4, 0.4, 0.4]) == PairJudgement("undecided", None, "3 pairs of at least 4", True)


def test_what_is_shown_is_what_was_decided() -> None:
    """Ends are rounded outwards: a lower end of 1.00 is never called faster."""
    nearly = judge([0.0199, 0.0201] * 8)
    assert nearly.measured == MeasuredSpeedup(pytest.approx(1.0202, abs=1e-4), 1.01, 1.04, 16)
    assert nearly.outcome == "faster"
    barely = judge([0.0189, 0.0191] * 8)
    assert barely.measured is not None and barely.measured.lo == 1.0 and barely.outcome == "undecided"


@pytest.mark.parametrize(("gain", "half"), [(0.0, 0.01), (0.05, 0.01), (0.3, 0.0375), (1.0, 0.065)])
def test_pairs_that_agree_have_the_interval_of_what_processes_differ_by(gain: float, half: float) -> None:
    """In proportion to what the change moves; one without effect, and by chance, at least one percent."""
    found = judge([gain] * 4).measured
    assert found is not None
    assert (found.lo, found.hi) == pytest.approx((math.exp(gain - half), math.exp(gain + half)), abs=0.01)


@pytest.mark.parametrize(
    ("centre", "reason"),
    [(0.0, ""), (-0.1, "8–11 % slower"), (-0.012, "perhaps up to 3 % slower")],
)
def test_a_change_without_gain_says_by_how_much_it_is_slower(centre: float, reason: str) -> None:
    found = judge([centre + noise for noise in (-0.002, 0.002, -0.001, 0.001)])
    assert (found.outcome, found.reason, found.go_on) == ("no_gain", reason, False)


def test_an_undecided_one_says_what_a_decision_takes() -> None:
    pairs = [0.06 + noise for noise in (-0.15, 0.15, -0.1, 0.1) * 4]
    found = judge(pairs, pair_s=4.0)
    assert (found.outcome, found.go_on) == ("undecided", False)
    assert found.reason == "about 53 more pairs (3m 32s) would decide"
    assert judge(pairs).reason == "about 53 more pairs would decide"
    assert judge([0.015] * 16).reason == "too small a difference to tell from chance"


def test_that_many_pairs_do_decide() -> None:
    noise = (-0.15, 0.15, -0.1, 0.1) * 20
    assert judge([0.06 + each for each in noise[:69]]).outcome == "faster"


def test_a_faster_one_is_measured_until_its_interval_is_narrow() -> None:
    noisy, quiet = (
        judge([0.5 + noise for noise in spread]) for spread in ((-0.04, 0.05, -0.03, 0.02), (0.0, 0.01) * 2)
    )
    assert noisy.outcome == quiet.outcome == "faster" and noisy.go_on and not quiet.go_on
    assert noisy.measured and quiet.measured
    assert (noisy.measured.hi - noisy.measured.lo) / 2 > NARROW * noisy.measured.speedup
    assert not judge([0.5 + noise for noise in (-0.2, 0.2) * 8]).go_on, "the last look is the last"


def test_a_stalled_pair_does_not_hide_a_gain() -> None:
    pairs = [0.095 + noise for noise in (-0.03, 0.02, 0.01, -0.02, 0.03, -0.01, 0.0)]
    found = judge([*pairs, -0.9])
    assert found.outcome == "faster" and found.measured is not None
    assert found.measured.speedup == pytest.approx(1.1, abs=0.01)


def test_more_fixes_ask_for_more() -> None:
    pairs = [0.08 + noise for noise in (-0.06, 0.05, -0.04, 0.03, 0.06, -0.05, 0.04, -0.03)]
    one, ten = judge(pairs), judge(pairs, comparisons=10)
    assert one.outcome == "faster" and ten.outcome == "undecided"


def test_what_all_pairs_share_is_added() -> None:
    pairs = [0.05, 0.051, 0.049, 0.05] * 4
    assert judge(pairs).outcome == "faster" and judge(pairs, shared_sd=0.03).outcome == "undecided"
    assert judge(pairs, shared_sd=0.03).reason == "too small a difference to tell from chance"


@pytest.mark.parametrize(
    ("freedom", "beyond", "quantile"),
    [(1, 0.025, 12.7062), (2, 0.025, 4.30265), (3, 0.025, 3.18245), (7, 0.005, 3.49948), (10, 0.025, 2.22814), (15, 0.0005, 4.0728)],
)  # fmt: skip
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, beyond: float, quantile: float) -> None:
    assert student(beyond, freedom) == pytest.approx(quantile, abs=1e-4)
