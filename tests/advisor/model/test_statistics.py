"""Robust statistics, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from rn50_advisor.advisor.model.statistics import beyond_others, others_median, weighted_quantile


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 31])
def test_what_a_key_has_beyond_the_others_is_its_value_less_their_median(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(20):
        by_key = {key: float(value) for key, value in enumerate(random.integers(0, 6, count))}  # with ties
        expected = {key: value - others_median(by_key, key) for key, value in by_key.items()}
        assert beyond_others(by_key) == expected


def test_one_key_has_no_others() -> None:
    with pytest.raises(ValueError, match="median"):
        beyond_others({0: 1.0})


def test_a_weighted_quantile_is_that_of_the_list_in_full() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([2.0, 50.0, 48.0])
    assert [weighted_quantile(values, weights, share) for share in (0.25, 0.5, 0.6, 0.97, 0.99, 1.0)] == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert weighted_quantile(np.array([1.0, 2.0]), np.ones(2), 0.5) == 1.5, "as numpy's where all weigh alike"
    with pytest.raises(ValueError, match="nothing"):
        weighted_quantile(np.array([]), np.array([]), 0.5)
