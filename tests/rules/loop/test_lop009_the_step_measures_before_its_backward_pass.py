"""LOP009, the step measures before its backward pass: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import lop008
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT
from rule_runs import RULES, found
from rule_table import Table, waits, warm
from table_checks import Check, checks


def lop009(spends: float = 0.2, *, alone: bool = False, seen: bool = True, samples: int = 80, **more: Any) -> Analysis:
    """As LOP008's, after the model."""
    made = lop008(spends, alone=alone, seen=seen, samples=samples, **more)
    values = {("step.measuring_s" if k == "step.preparing_s" else k, scope): v for (k, scope), v in made.values.items()}
    return replace(made, values=values, measuring_lines=made.preparing_lines, preparing_lines=())


TABLE = Table(
    "LOP009",
    lop009,
    lines={"measuring": ({"spends": 0.05}, {"spends": 0.0499})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a forward pass that is as long as usual, without a profile": {"seen": False, "forward": 0.33},
    },
    severities=waits("spends"),
    where=Where(SCRIPT, 57),
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 0.915))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("samples", "worst"), [(80, 0.732), (16, 0.525)])
def test_lop009_leaves_a_tenth_within_the_error_of_the_samples(samples: int, worst: float) -> None:
    finding, error = found("LOP009", TABLE.job(samples=samples)), 1.5 / samples**0.5
    assert finding.fixes[0].title == "run it every N steps" and finding.saving is not None
    assert finding.saving.seconds_per_step[0] == pytest.approx(0.2 * worst, rel=1e-3)
    assert finding.saving.speedup[1] == pytest.approx(warm(1 / (1 - 0.2 * (0.9 + error))))


def test_lop009_is_not_measured_if_a_long_forward_pass_was_not_profiled() -> None:
    result = run_rule(RULES["LOP009"], lop009(seen=False), Config())
    assert result == NotMeasured("LOP009", ("step.measuring_s",))
