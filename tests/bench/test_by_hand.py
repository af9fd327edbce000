"""The comparison of `bench` with a hand-written loop recognises equal speed. No speed is measured here."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

from by_hand import Compared, markdown


@pytest.mark.parametrize(
    ("by_bench", "alike"),
    [
        ((100.0, 100.0, 100.0), True),
        ((104.9, 104.9, 104.9), True),
        ((95.1, 95.1, 95.1), True),
        ((105.1, 105.1, 105.1), False),
        ((94.9, 94.9, 94.9), False),
        ((150.0, 101.0, 60.0), True),  # the median of the pairs counts, not a single pair
        ((150.0, 130.0, 100.0), False),
    ],
)
def test_alike_is_within_five_percent_by_the_median_of_the_pairs(by_bench: tuple[float, ...], alike: bool) -> None:
    found = Compared("resnet18", (100.0, 100.0, 100.0), by_bench)
    assert found.alike == alike and found.row[-1] == ("yes" if alike else "no")


def test_pairs_are_of_one_round_each() -> None:
    """A machine that slows down between rounds does not change the ratios."""
    found = Compared("resnet18", (100.0, 50.0, 80.0), (101.0, 50.5, 80.8))
    assert found.ratios == pytest.approx([1.01] * 3) and found.alike
    assert "1.010" in markdown([found], batch=8, seconds=1.0)
