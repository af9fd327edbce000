"""The share of a backward pass that its work gives without some gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, spared_share
from rule_cases import job, rank


def analysis() -> Analysis:
    return job({0: rank(forward=0.3, backward=0.6)})


def test_products_alone_are_spared_by_their_share() -> None:
    assert spared_share(analysis(), [1000, 400], [0, 0]) == pytest.approx((0.7 * 0.4, 1.15 * 0.4))


def test_elements_count_between_ten_and_a_hundred_products() -> None:
    low, high = spared_share(analysis(), [1000, 0], [10, 10])
    assert low == pytest.approx(0.7 * 100 / 1100) and high == pytest.approx(1.15 * 1000 / 2000)


def test_no_more_is_spared_than_there_is() -> None:
    assert spared_share(analysis(), [1000, 1000], [0, 0])[1] == 1.0


def test_a_pass_without_work_spares_nothing() -> None:
    assert spared_share(analysis(), [0, 0], [0, 0]) == (0.0, 0.0)


def test_a_line_is_named_by_five_samples() -> None:
    few, enough = (replace(hot(at, "forward", io=False), samples=n) for at, n in ((30, 4), (31, 5)))
    assert sampled((few, enough)) == enough and sampled((few,)) is None
    evidence = line_evidence(enough)
    assert evidence.value == 5.0 and evidence.note == f"{enough.file}:31 in forward"
