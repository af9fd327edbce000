"""Memory of processes over a run."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.changes import MemoryTrend


@pytest.mark.parametrize(
    ("first_mb", "mb_per_s", "growth"), [(1000.0, 1.0, 0.3), (1000.0, -1.0, -0.3), (300.0, 1.0, 1.0)]
)
def test_growth_is_a_share_of_what_was_held_first(first_mb: float, mb_per_s: float, growth: float) -> None:
    thirds = (first_mb, first_mb + 100, first_mb + 200)
    trend = MemoryTrend(0, "rank", 1, False, seconds=300.0, steps=100.0, thirds_mb=thirds, mb_per_s=mb_per_s)
    assert trend.growth == pytest.approx(growth)


def test_a_process_that_held_nothing_has_a_growth_too() -> None:
    assert MemoryTrend(0, "worker", 2, True, 10.0, 5.0, (0.0, 1.0, 2.0), 1.0).growth > 1e9
