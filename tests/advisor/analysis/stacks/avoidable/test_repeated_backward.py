"""From the passes that the recorder saw to what they cost in a step, and where the job needs each of them."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import SCRIPT, profiled
from rn50_advisor.advisor.model.analysis import Analysis

EACH = """\
def train():
    for x, y in loader:
        optimizer.zero_grad()
        z = trunk(x)
        for loss in losses(z, y):
            loss.backward(retain_graph=True)
            {inside}
        {between}
        last(z, y).backward()
        print(trunk.weight.grad.norm())
        optimizer.step()
"""


def seen(*lines: int, source: str = "", timed: bool = True, **more: Any) -> Analysis:
    """Passes at these lines, of which 40 % of the time, or 60 % of the work, is in nodes gone through again."""
    at = [{"file": SCRIPT, "line": line, "passes": 6} for line in lines or (6, 9)]
    counts = {"steps": 3, "repeating": 3, "passes": 12, "again": 9, "products": [100, 60], "points": [10, 6]}
    facts: dict[str, Any] = {"repeated_passes": {**counts, "lines": at, **more}}
    if timed:
        facts["backward_nodes"] = {"passes": 12, "ns": 1000, "classes": [], "again_ns": 400}
    return profiled(
        source=source or EACH.format(inside="pass", between="pass"), model=4, backward=9, facts={100: facts}
    )


def share(a: Analysis) -> float:
    assert a.model is not None
    return a.value("step.again_s", 0) / a.model.own[0]["backward"]


def test_the_share_of_the_time_of_nodes_gone_through_again() -> None:
    assert share(seen()) == pytest.approx(0.4)


def test_without_times_the_share_of_their_work() -> None:
    assert share(seen(timed=False)) == pytest.approx(0.6)


def test_without_both_it_is_not_known() -> None:
    a = seen(timed=False, products=[0, 0], points=[0, 0])
    assert a.get("step.again_s", 0) is None
    assert "too large" in dict(a.reasons)["step.again_s", 0]


def test_an_older_recorder_saw_nothing() -> None:
    a = profiled(source="pass\n", model=1, backward=1, facts={100: {}})
    assert "step.again_s" in {measure for measure, _ in dict(a.reasons)}


def test_passes_that_repeat_nothing_cost_nothing() -> None:
    assert share(seen(again=0, lines=[])) == 0.0


@pytest.mark.parametrize(
    ("lines", "where", "reads"),
    [
        ((6, 9), {"inside": "kept.append(trunk.weight.grad.clone())"}, True),
        ((6, 9), {"between": "first = [p.grad for p in trunk.parameters()]"}, True),
        ((6, 9), {"between": "g = torch.autograd.grad(z.sum(), trunk.weight)"}, True),
        ((6,), {"inside": "norms.append(trunk.weight.grad.norm())"}, True),
        ((6,), {"between": "log(trunk.weight.grad)"}, False),
        ((6, 9), {}, False),
    ],
)
def test_gradients_that_are_read_between_the_passes_are_needed(
    lines: tuple[int, ...], where: dict[str, str], reads: bool
) -> None:
    a = seen(*lines, source=EACH.format(**{"inside": "pass", "between": "pass", **where}))
    assert share(a) == (0.0 if reads else pytest.approx(0.4))
