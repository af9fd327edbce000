"""COM013, the model exchanges what it computes: its table and its advice, and what is left of the gradients' exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comm_rule_cases import wrapped
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

GATHER = {"file": SCRIPT, "line": 9, "function": "gathered", "library": "", "kind": "all_gather", "in_module": True}
AT = {**GATHER, "calls": 400, "bytes": 400_000_000, "held_ns": [9, 0, 0, 0, 0]}
BACKWARD = {**AT, "library": "torch", "line": 30, "kind": "reduce_scatter", "held_ns": [0, 20, 0, 0, 0]}


def com013(
    held: float | None = 0.2,
    *,
    wire: float | None = None,
    error: float = 0.0,
    steady: int = 200,
    site: dict[str, Any] = AT,
) -> Analysis:
    """Two ranks that gather features, and pass gradients back through the gather. `wire`: all exposed exchanges, those too."""
    wire = (held or 0.0) if wire is None else wire
    own = {n: rank(1.0 - wire, backward=0.6 * (1.0 - wire)) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "comm.wire_error": error, "steady": steady}
    if held is not None:
        values["collectives.model_s"] = held
    made = wrapped(own, values=values)
    return replace(made, facts={name: {**each, "collectives": [site, BACKWARD]} for name, each in made.facts.items()})


TABLE = Table(
    "COM013",
    com013,
    lines={"held": ({"held": 0.1}, {"held": 0.0999})},
    false_alarms={
        "nothing exchanged": {"held": 0.0, "wire": 0.3},
        "not measured": {"held": None, "wire": 0.3},
        "uneven steps": {"held": 0.12, "error": 0.4},
    },
    severities=(({"held": 0.3}, "critical"), ({"held": 0.2}, "high"), ({"held": 0.1}, "medium")),
    where=Where(SCRIPT, 9),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_line_of_the_forward_pass_is_named_and_half_the_bytes_are_spared() -> None:
    finding = found("COM013", com013())
    assert finding.title == "Activations exchanged in every step: all_gather"
    assert "local loss" in finding.fixes[0].change and "gathered" in finding.evidence[1].note
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1 / 0.94, 1 / 0.88))


def test_other_collectives_get_no_advice_on_contrastive_losses() -> None:
    finding = found("COM013", com013(site={**AT, "kind": "all_reduce"}))
    assert finding.title.endswith("all_reduce") and "local loss" not in finding.fixes[0].change


def test_the_rest_is_the_exchange_of_gradients() -> None:
    only = run_rule(RULES["COM001"], com013(0.2, wire=0.3), Config())
    assert isinstance(only, Clear), "0.1 of 1 s are gradients"
    both = found("COM001", com013(0.1, wire=0.4))
    assert both.evidence[0].value == pytest.approx(0.3)


def test_of_small_tensors_fewer_calls_are_spared() -> None:
    saving = found("COM013", com013(site={**AT, "bytes": 400 * 4096})).saving
    assert saving is not None and "as many" in saving.basis
