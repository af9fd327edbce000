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
    }
    optimizer = {"class": "SGD", "file": "/job/tune.py", "line": 21}
    facts = {"model": {"class": "net.Net"}, "optimizer": optimizer, "unused_gradients": unused} if known else {}
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
    assert "meant to" in learn.title


def test_cmp020_is_silent_about_one_layer_of_many() -> None:
    assert "CMP020" not in [
        finding.rule for finding in judged(cmp020(elements=100_000, tensors=1, backward=0.4)).findings
    ]
