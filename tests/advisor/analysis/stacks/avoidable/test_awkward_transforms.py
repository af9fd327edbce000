"""From timed backward passes and a profile to Fourier transforms of awkward lengths, and the lines that call them."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.analysis.stacks.avoidable.awkward_transforms import largest_factor
from rn50_advisor.advisor.model.analysis import Analysis

SOURCE = """\
class Filter:
    def forward(self, x):
        y = torch.fft.rfft(x, n=4999)
        return torch.fft.irfft(y * self.k, n=4999)

def train():
    for x, y in loader:
        loss = net(x).sum()
        loss.backward()
"""


def seen(*transforms: tuple[int, int], known: bool = True) -> Analysis:
    rows = (
        looks(30, ("train", SCRIPT, 8), MODULE, ("Filter.forward", SCRIPT, 3), text="y = torch.fft.rfft(x, n=4999)"),
        looks(30, ("train", SCRIPT, 8), MODULE, ("Filter.forward", SCRIPT, 4), text="return self.filtered(y)"),
    )
    timed: dict[str, Any] = {"passes": 3, "ns": 1000, "classes": []}
    timed |= {"transforms": [list(each) for each in transforms]} if known else {}
    return profiled(*rows, source=SOURCE, model=8, backward=9, facts={100: {"backward_nodes": timed}})


def test_lengths_with_a_large_factor_have_their_share_of_the_pass() -> None:
    a = seen((5000, 300), (4999, 200), (254, 50))
    assert a.value("step.transforms_s", 0) == pytest.approx(0.25 * a.model.own[0]["backward"])
    (line,) = a.transforming_lines
    assert (line.line, line.leaf, line.samples) == (3, "4999", 30)


def test_fast_lengths_are_none() -> None:
    a = seen((5000, 300))
    assert a.value("step.transforms_s", 0) == 0 and a.transforming_lines == ()


def test_an_older_recorder_did_not_look_for_them() -> None:
    assert not seen(known=False).has("step.transforms_s")


@pytest.mark.parametrize(
    ("number", "factor"), [(1, 1), (2, 2), (4096, 2), (5000, 5), (4999, 4999), (998, 499), (4850, 97)]
)
def test_the_largest_prime_factor(number: int, factor: int) -> None:
    assert largest_factor(number) == factor
