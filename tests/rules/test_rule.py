"""The definition of a rule: its id and text from the module, severities and confidence."""

from __future__ import annotations

import dataclasses

import pytest

from rn50_advisor.rules.registry import all_rules
from rn50_advisor.rules.rule import confidence, severity
from rn50_advisor.rules.rule import rule as make_rule

RULES = {rule.id: rule for rule in all_rules()}


def test_the_id_and_the_text_come_from_the_module() -> None:
    made = make_rule(
        "rn50_advisor.rules.data_loading.dat003_loading_in_training_process", "a name", RULES["DAT003"].check
    )
    assert made.id == "DAT003" and made.doc == RULES["DAT003"].doc


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        *(
            (5.0, "critical"),
            (0.30, "critical"),
            (0.2999, "high"),
            (0.15, "high"),
            (0.1499, "medium"),
            (0.05, "medium"),
        ),
        *((0.0499, "low"), (0.02, "low"), (0.0199, None), (0.0, None), (-1.0, None)),
    ],
)
def test_severity_lines_are_those_of_the_catalogue(share: float, expected: str | None) -> None:
    assert severity(share) == expected


@pytest.mark.parametrize(("steps", "expected"), [(5, 0.6), (20, 0.8), (100, 0.95), (1000, 0.95), (0, 0.55)])
def test_confidence_grows_with_the_steps_seen(steps: int, expected: float) -> None:
    from rn50_advisor.advisor.model.analysis import Analysis
    from rn50_advisor.advisor.model.recording import Meta
    from rn50_advisor.advisor.model.report import StepTime, Throughput

    meta = Meta("job", (), "/", "node", 0.0, 0, 0)
    analysis = Analysis(meta, 1, StepTime(1.0, 1.0, steps, steps), Throughput(None, None, None, 1))
    assert confidence(analysis) == pytest.approx(expected, abs=0.01)
    assert confidence(analysis, cap=0.7) <= 0.7


def test_a_rule_cannot_be_changed_by_whoever_holds_it() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RULES["DAT003"].name = "other"  # type: ignore[misc]
