"""The share of the training that was seen."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.seen_share import Coverage


@pytest.mark.parametrize(
    ("total_s", "unseen_s", "after_s", "seen_s"),
    [(10, 0, 0, 10), (10, 4, 1, 5), (10, 10, 0, 0), (10, 8, 5, 0), (0, 0, 0, 0)],
)
def test_seen_is_what_is_neither_unseen_nor_after_it(
    total_s: float, unseen_s: float, after_s: float, seen_s: float
) -> None:
    assert Coverage(12, total_s, 3, unseen_s, after_s).seen_s == seen_s
