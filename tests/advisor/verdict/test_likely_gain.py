"""What a fix is likely to bring: made from a rule's worst and best case by how its predictions have fared."""

from __future__ import annotations

import math

import pytest

from rn50_advisor.advisor.model.findings import RUNS_DIFFER, Saving
from rn50_advisor.advisor.verdict.likely_gain import (
    ANY_RULE,
    CONFIDENCE,
    GainErrors,
    error,
    errors_of,
    expected,
    gain_errors,
)
from rn50_advisor.rules.registry import all_rules

MIDDLE = GainErrors(-0.5, 0.0, 0.5, 4, 12, 11, 10)


def saving(worst: float, best: float) -> Saving:
    return Saving((1.0 - 1.0 / worst, 1.0 - 1.0 / best), (worst, best), "why")


def test_the_two_cases_become_a_likely_value_with_its_range() -> None:
    found = expected(saving(1.25, 2.0), MIDDLE)
    spread = 0.08 + 0.3 * math.log(2.0 / 1.25) / 2
    assert found.likely == pytest.approx(math.sqrt(1.25 * 2.0))
    assert found.speedup == pytest.approx((found.likely * math.exp(-spread / 2), found.likely * math.exp(spread / 2)))
    assert found.seconds_per_step == pytest.approx(tuple(1.0 - 1.0 / end for end in found.speedup))
    assert (found.bounds, found.confidence, found.basis) == ((1.25, 2.0), CONFIDENCE, "why")


def test_a_range_is_never_narrower_than_what_two_runs_differ_by_and_may_show_a_loss() -> None:
    found = expected(saving(1.02, 1.03), MIDDLE)
    assert found.likely is not None
    assert found.speedup == pytest.approx((found.likely * (1 - RUNS_DIFFER), found.likely * (1 + RUNS_DIFFER)))
    assert found.speedup[0] < 1.0 and found.seconds_per_step[0] < 0.0


def test_a_range_stays_near_the_two_cases() -> None:
    far = GainErrors(1.2, 1.25, 7.4, 4, 12, 11, 10)
    found = expected(saving(1.1, 15.0), far)
    assert found.speedup == pytest.approx((1.1 * 1.5, 15.0 * 1.5)) and found.likely is not None
    beyond = expected(saving(1.1, 1.2), GainErrors(6.0, 8.0, 9.0, 4, 12, 11, 10))
    assert beyond.likely is not None and beyond.likely > 1.2 * 1.5
    assert beyond.speedup == pytest.approx((1.1 * 1.5, beyond.likely * (1 + RUNS_DIFFER)))


def test_no_gain_stays_none() -> None:
    found = expected(saving(1.0, 1.0), MIDDLE)
    assert (found.likely, found.speedup, found.seconds_per_step, found.bounds) == (1.0, (1.0, 1.0), (0.0, 0.0), None)


@pytest.mark.parametrize(("bounds", "spread"), [((1.2, 1.2), 0.08), ((1.2, 1.2 * math.exp(0.2)), 0.11)])
def test_an_error_is_counted_in_units_of_a_spread_that_grows_more_slowly_than_the_interval(
    bounds: tuple[float, float], spread: float
) -> None:
    middle = math.sqrt(bounds[0] * bounds[1])
    gains = middle * math.exp(-spread), middle, middle * math.exp(2.0 * spread)
    assert [error(bounds, gain) for gain in gains] == pytest.approx([-1.0, 0.0, 2.0], abs=1e-9)


def test_a_rule_whose_fix_was_never_tried_is_corrected_as_the_others_are() -> None:
    assert errors_of("XYZ001") is gain_errors()[ANY_RULE]
    assert errors_of("DAT004") is not gain_errors()[ANY_RULE]


def test_every_rule_of_the_table_is_one_and_its_likely_value_lies_within_its_range() -> None:
    known = {rule.id for rule in all_rules()}
    for rule, errors in gain_errors().items():
        assert rule == ANY_RULE or rule in known
        assert errors.low < errors.likely < errors.high
        assert min(errors.held, errors.near) >= 0 and max(errors.held, errors.near) <= errors.measured
