"""CMP037, linear operations are in an expensive order: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis, ReorderedOperations
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp037(
    spared: float = 0.2,
    *,
    kind: str = "products",
    layer: str = "",
    samples: int = 20,
    timed: bool = True,
    cuda: bool = False,
    **more: Any,
) -> Analysis:
    """A rank whose backward pass of 0.6 s would spare so many seconds in another order."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {"step.orders_s": {0: spared}} if timed else {}
    line = replace(hot(30, "forward", io=False), samples=samples)
    own = {0: rank(forward=0.3, backward=0.6)}
    return job(own, values=values, **{"reordered": ReorderedOperations(kind, layer, (line,)), "facts": facts, **more})


TABLE = Table(
    "CMP037",
    cmp037,
    lines={"orders": ({"spared": 0.0384}, {"spared": 0.0382})},
    false_alarms={
        "the cheap order": {"spared": 0.0},
        "no recorder saw any": {"reordered": None},
        "too few samples of a line without a layer": {"samples": 4},
        "on a GPU": {"cuda": True},
    },
    severities=(({"spared": 0.25}, "critical"), ({"spared": 0.1}, "high"), ({"spared": 0.0384}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no pass was timed": ({"timed": False}, ("step.orders_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_gain_includes_a_part_of_the_forward_pass() -> None:
    saving = found("CMP037", cmp037()).saving
    assert saving is not None
    assert saving.seconds_per_step == pytest.approx((0.2 * 1.0 / 0.91, 0.2 * 1.85 / 0.91))


@pytest.mark.parametrize(
    ("kind", "layer", "fix"),
    [
        ("products", "", "multiply the two other matrices first"),
        ("pooled", "encoder.head", "average first, then apply encoder.head"),
        ("pooled", "", "average first, then apply the layer"),
        ("enlarged", "classify", "apply classify first, then enlarge the image"),
    ],
)
def test_each_kind_has_its_advice(kind: str, layer: str, fix: str) -> None:
    finding = found("CMP037", cmp037(kind=kind, layer=layer))
    assert finding.fixes[0].title == fix
    assert finding.title == "Linear operations in an expensive order" + (f": {layer}" if layer else "")


def test_a_layer_is_told_without_a_line() -> None:
    finding = found("CMP037", cmp037(kind="pooled", layer="head", samples=4))
    assert finding.fixes[0].where is None and len(finding.evidence) == 1
