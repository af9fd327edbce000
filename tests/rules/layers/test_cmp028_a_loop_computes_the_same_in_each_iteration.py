"""CMP028, a loop computes the same in each iteration: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import PARAMETRIZED, Analysis
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def cmp028(
    invariant: float | None = 0.1,
    *,
    samples: int = 40,
    leaf: str = "Linear.forward (linear.py:130)",
    backward: float = 0.6,
    cuda: bool = False,
    **more: Any,
) -> Analysis:
    """A rank that spends so many seconds of its second on what is the same in each iteration."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {} if invariant is None else {"step.invariant_s": {0: invariant}}
    lines = (replace(hot(30, "Attention.forward", io=False), samples=samples, leaf=leaf),)
    own = {0: rank(forward=0.9 - backward, backward=backward)}
    return job(own, invariant_lines=lines, facts=facts, **{"values": values, **more})


TABLE = Table(
    "CMP028",
    cmp028,
    lines={"invariant": ({"invariant": 0.0196}, {"invariant": 0.0194})},
    false_alarms={"no line": {"samples": 9}, "on a GPU": {"cuda": True}},
    severities=(({"invariant": 0.15}, "critical"), ({"invariant": 0.05}, "high"), ({"invariant": 0.0196}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no profile": ({"invariant": None}, ("step.invariant_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("leaf", "saved"),
    [
        pytest.param("Linear.forward (linear.py:130)", (0.5 * 2.8, 4.2), id="a layer"),
        pytest.param(PARAMETRIZED, (0.5 * 2.0, 6.6), id="weights"),
        pytest.param("", (0.5, 2.0), id="an expression, which may need no gradient"),
    ],
)
def test_the_gain_includes_the_backward_pass(leaf: str, saved: tuple[float, float]) -> None:
    saving = found("CMP028", cmp028(0.05, leaf=leaf)).saving
    assert saving is not None and saving.seconds_per_step == pytest.approx(tuple(0.05 * each / 0.91 for each in saved))


def test_no_more_of_the_backward_pass_is_saved_than_there_is() -> None:
    saving = found("CMP028", cmp028(backward=0.05)).saving
    assert saving is not None and saving.seconds_per_step == pytest.approx((0.1 / 0.91, 0.15 / 0.91))


def test_weights_of_a_parametrized_layer_are_cached_around_the_loop() -> None:
    finding = found("CMP028", cmp028(leaf=PARAMETRIZED))
    assert "parametrize.cached()" in finding.fixes[0].change and PARAMETRIZED in finding.evidence[-1].note
    assert "before the loop" in found("CMP028", cmp028()).fixes[0].title


def test_the_nodes_of_parametrizations_that_were_timed_say_more_than_the_forward_pass() -> None:
    """Of an orthogonal layer's matrix exponential, the backward pass takes three times as long as the forward pass."""
    timed = {"step.invariant_s": {0: 0.05}, "step.parametrized_s": {0: 0.15}}
    saving = found("CMP028", cmp028(0.05, leaf=PARAMETRIZED, values=timed)).saving
    worst, best = 0.5 * (0.05 + 0.85 * 0.15), 0.05 + 1.05 * 0.15
    assert saving is not None and saving.seconds_per_step == pytest.approx((worst / 0.91, best / 0.91))
    counted = cmp028(0.05, leaf=PARAMETRIZED, values={**timed, "step.weight_computations": {0: 10.0}})
    saving = found("CMP028", counted).saving
    worst, best = 0.9 * (0.05 + 0.85 * 0.15), 0.9 * (0.05 + 1.05 * 0.15)
    assert saving is not None and saving.seconds_per_step == pytest.approx((worst / 0.91, best / 0.91))
    for few in (0.5, 1.0):  # not all weights in each pass
        once = cmp028(0.05, leaf=PARAMETRIZED, values={**timed, "step.weight_computations": {0: few}})
        assert run_rule(RULES["CMP028"], once, Config()) == Clear("CMP028")
    layers = found("CMP028", cmp028(0.05, values=timed)).saving
    assert layers is not None and layers.seconds_per_step[0] < worst / 0.91
