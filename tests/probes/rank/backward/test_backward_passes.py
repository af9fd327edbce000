"""Which lines call a backward pass, and which changes of a gradient leave its direction as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.backward.backward_passes import BackwardSite, calling_lines, scaled_alike


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        ([1.0, -2.0, 0.0], [0.5, -1.0, 0.0], True),
        ([1.0, -2.0, 0.0], [0.0, 0.0, 0.0], True),
        ([1.0, -2.0, 0.0], [1.0, -1.0, 0.0], False),
        ([1.0, -2.0, 0.0], [1.0, -2.0, 0.3], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, 0.0], [1.0, 0.0], False),
        ((3, 1000), (4, 1000), False),
    ],
)
def test_a_clipped_gradient_keeps_its_direction(before: Any, after: Any, alike: bool) -> None:
    assert scaled_alike(before, after) is alike


def test_lines_on_the_way_to_a_call_innermost_first() -> None:
    def inner() -> Any:
        return calling_lines()  # innermost

    def outer() -> Any:
        return inner()  # outer

    lines = Path(__file__).read_text().splitlines()
    found = outer()
    assert [lines[place["line"] - 1].partition("# ")[2] for place in found[:2]] == ["innermost", "outer"]
    assert 3 <= len(found) <= 4 and found[0]["file"] == __file__


def test_an_optimizer_that_uses_some_of_the_gradients_has_not_lost_them() -> None:
    site = BackwardSite([{"file": "/job/train.py", "line": 3}])
    site.outcomes = {0: [10, 10], 1: [10, 9], 2: [10, 8], 3: [10, 0]}
    assert site.lost_by() == [0, 1]
