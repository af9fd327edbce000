"""CMP020, gradients are computed that no optimizer uses: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import found, judged
from rule_table import Table
from table_checks import Check, checks


def cmp020(
    elements: int = 900_000,
    *,
    tensors: int = 9,
    looks: int = 10,
    first: bool = True,
    backward: float = 0.6,
    known: bool = True,
    graph: dict[str, Any] | None = None,
    timed: dict[str, int] | None = None,
    **more: Any,
) -> Analysis:
    """One rank whose optimizer gets one weight of ten, which is a tenth of a million elements."""
    unused = {
        "looks": looks,
        "tensors": tensors,
        "elements": elements,
        "all_tensors": 10,
        "all_elements": 1_000_000,
        "first": first,
        "modules": ["stem", "layers"],
        **(graph or {}),
    }
    optimizer = {"class": "SGD", "file": "/job/tune.py", "line": 21}
    facts = {"model": {"class": "net.Net"}, "optimizer": optimizer, "unused_gradients": unused} if known else {}
    if timed:
        facts["backward_nodes"] = {"passes": 3, "ns": 1000, "classes": [], **timed}
    own = rank(forward=0.9 - backward, backward=backward)
    return job({0: own}, **{"facts": {"0": facts}, **more})


TABLE = Table(
    "CMP020",
    cmp020,
    where=Where("/job/tune.py", 21),
    lines={
        "looks": ({"looks": 3}, {"looks": 2}),
        "cost": ({"backward": 0.0493}, {"backward": 0.0492}),
    },
    false_alarms={"biases alone": {"tensors": 0, "elements": 5_000}},
    not_measured={"a model that nobody has seen": ({"known": False}, ("model",))},
    severities=(({}, "critical"), ({"backward": 0.2}, "high"), ({"backward": 0.0493}, "medium")),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp020_takes_most_of_the_backward_pass_where_all_frozen_layers_come_first() -> None:
    assert found("CMP020", cmp020()).saving.speedup[0] > 2.0


def test_cmp020_keeps_half_of_the_backward_pass_where_frozen_layers_lie_between() -> None:
    finding = found("CMP020", cmp020(first=False))
    low, high = finding.saving.speedup
    assert 1.15 < low < high < 1.8


def test_cmp020_keeps_what_large_last_layers_need() -> None:
    wide = found("CMP020", cmp020(elements=300_000))
    assert wide.saving.speedup[0] < found("CMP020", cmp020()).saving.speedup[0]


def test_cmp020_says_what_to_freeze_and_that_the_model_may_not_have_learned() -> None:
    freeze, learn = found("CMP020", cmp020()).fixes
    assert "stem, layers" in freeze.change
    assert "should train" in learn.title


def test_cmp020_is_silent_about_one_layer_of_many() -> None:
    assert "CMP020" not in [
        finding.rule for finding in judged(cmp020(elements=100_000, tensors=1, backward=0.4)).findings
    ]


TEACHER = {"file": "/job/distil.py", "line": 30, "order": "upstream", "products": [1000, 500], "points": [0, 0]}


def test_cmp020_spares_the_share_of_the_work_that_the_graph_shows() -> None:
    low, high = found("CMP020", cmp020(graph=TEACHER)).saving.speedup
    assert 1 / (1 - 0.6 * 0.5) > low > 1 / (1 - 0.6 * 0.3)
    assert high > 1 / (1 - 0.6 * 0.55)


def test_cmp020_takes_the_time_of_nodes_for_more_than_the_graph() -> None:
    by_graph = found("CMP020", cmp020(graph=TEACHER)).saving
    by_time = found("CMP020", cmp020(graph=TEACHER, timed={"unneeded_ns": 300, "partly_ns": 0})).saving
    assert by_time.speedup[1] < by_graph.speedup[1]
    both = found("CMP020", cmp020(graph=TEACHER, timed={"unneeded_ns": 300, "partly_ns": 300})).saving
    assert both.speedup[0] > by_time.speedup[0]


def test_cmp020_does_not_use_times_that_may_include_what_is_used_after_all() -> None:
    timed = {"unneeded_ns": 900, "partly_ns": 0}
    assert found("CMP020", cmp020(timed=timed)).saving == found("CMP020", cmp020()).saving


def test_cmp020_points_at_the_call_of_a_teacher_and_advises_no_grad() -> None:
    first, _ = found("CMP020", cmp020(graph=TEACHER)).fixes
    assert first.where == Where("/job/distil.py", 30) and "no_grad" in first.change


def test_cmp020_only_freezes_a_network_through_which_gradients_pass() -> None:
    judged_through = found("CMP020", cmp020(graph={**TEACHER, "order": "downstream"}))
    first, _ = judged_through.fixes
    assert first.where == Where("/job/distil.py", 30) and "no_grad" not in first.change
    assert judged_through.saving.speedup[1] < found("CMP020", cmp020(graph=TEACHER)).saving.speedup[1]
