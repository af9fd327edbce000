"""CMP032, several backward passes through one graph: its table, its estimate and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp032(
    again: float = 0.4,
    *,
    steps: int = 3,
    repeating: int | None = None,
    passes: tuple[int, ...] = (9, 3),
    known: bool = True,
    timed: bool = True,
    gpu: bool = False,
    **more: Any,
) -> Analysis:
    """A rank of whose second this much goes again through the graph, with so many passes at lines 42, 43 and so on."""
    lines = [{"file": SCRIPT, "line": 42 + n, "passes": count} for n, count in enumerate(passes)]
    facts: dict[str, Any] = {
        "repeated_passes": {
            "steps": steps,
            "repeating": steps if repeating is None else repeating,
            "passes": sum(passes),
            "again": sum(passes) - steps,
            "lines": lines,
            "products": [100, 60],
            "points": [10, 6],
        }
    }
    if timed:
        facts["backward_nodes"] = {"passes": 12, "ns": 1000, "classes": [], "again_ns": 600}
    if gpu:
        facts["cuda"] = {"index": 0}
    values = {"step.again_s": {0: again}} if known else {}
    own = rank(forward=0.29, backward=0.7, optimizer=0.01)
    return job({0: own}, **{"values": values, "facts": {"0": facts}, **more})


TABLE = Table(
    "CMP032",
    cmp032,
    lines={
        "steps": ({"steps": 2}, {"steps": 1}),
        "again": ({"again": 0.0489}, {"again": 0.0486}),
    },
    false_alarms={
        "a second pass now and then": {"repeating": 2},
        "layers that take no time": {"again": 0.01},
        "gradients that are needed one by one": {"again": 0.0},
    },
    severities=(({}, "critical"), ({"again": 0.2}, "high"), ({"again": 0.1}, "medium")),
    where=Where(SCRIPT, 42),
    not_measured={"an older recorder, or a graph that is too large": ({"known": False}, ("step.again_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_estimate_is_the_time_of_the_nodes_gone_through_again() -> None:
    saving = found("CMP032", cmp032()).saving
    assert saving is not None and saving.seconds_per_step == pytest.approx((0.85 * 0.4, 1.2 * 0.4))


def test_no_more_than_the_backward_pass_is_spared() -> None:
    saving = found("CMP032", cmp032(again=0.65)).saving
    assert saving is not None and saving.seconds_per_step[1] == pytest.approx(0.7)


@pytest.mark.parametrize("more", [{"timed": False}, {"timed": False, "gpu": True}])
def test_shapes_say_less_than_time(more: dict[str, Any]) -> None:
    finding = found("CMP032", cmp032(**more))
    assert finding.saving is not None and finding.saving.seconds_per_step == pytest.approx((0.4 * 0.4, 1.15 * 0.4))
    assert finding.confidence <= 0.6 < found("CMP032", cmp032()).confidence <= 0.8


def test_passes_of_a_loop_are_collected() -> None:
    [fix] = found("CMP032", cmp032()).fixes
    assert "sum(losses).backward() once" in fix.change and "in line 43" in fix.change
    [fix] = found("CMP032", cmp032(passes=(12,))).fixes
    assert "sum(losses)" in fix.change and "in line" not in fix.change


def test_passes_at_lines_of_their_own_are_added_up() -> None:
    finding = found("CMP032", cmp032(passes=(3, 3)))
    assert "(loss_a + loss_b).backward()" in finding.fixes[0].change
    assert finding.title.endswith("2 in each step")
