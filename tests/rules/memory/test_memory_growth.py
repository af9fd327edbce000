"""Growth of memory: whether it goes on, and how urgent it is."""

from __future__ import annotations

import pytest

from rn50_advisor.rules.memory.memory_growth import growth_severity, growth_title, rises

LIMITS = {"growth": 0.05, "lasting": 0.3}


@pytest.mark.parametrize(
    ("thirds_mb", "growth", "rising"),
    [
        ((100.0, 110.0, 120.0), 0.2, True),
        ((100.0, 110.0, 120.0), 0.05, True),
        ((100.0, 110.0, 120.0), 0.049, False),
        ((100.0, 119.0, 120.0), 0.2, False),  # it has come to an end
        ((100.0, 101.0, 120.0), 0.2, False),  # a jump
        ((100.0, 113.0, 120.0), 0.2, True),
        ((120.0, 110.0, 100.0), 0.2, False),
        ((100.0, 100.0, 100.0), 0.2, False),
    ],
)
def test_it_rises_by_enough_and_all_along(thirds_mb: tuple[float, float, float], growth: float, rising: bool) -> None:
    assert rises(thirds_mb, growth, LIMITS) is rising


@pytest.mark.parametrize(
    ("lasts_s", "severity"),
    [(0.0, "critical"), (599.0, "critical"), (600.0, "high"), (3600.0, "medium"), (43200.0, "low"), (1e9, "low")],
)
def test_the_sooner_memory_ends_the_worse(lasts_s: float, severity: str) -> None:
    assert growth_severity(lasts_s) == severity


def test_the_title_says_when_it_ends_where_that_is_soon() -> None:
    assert growth_title("Host memory", 540.0) == "Host memory grows and runs out in 9m 00s"
    assert growth_title("Host memory", 700.0) == "Host memory grows steadily"
