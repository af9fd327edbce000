"""The user's own computing inside the step: on which ranks, at which line, and the step with less of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import lop008
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_PREPARING_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, step_without
from rule_cases import SCRIPT, rank


def looked(a: Analysis, **given: Any) -> OwnCode | Clear | NotMeasured:
    return own_code(
        "XYZ001",
        a,
        STEP_PREPARING_S,
        given.get("lines", a.preparing_lines),
        least=0.05,
        doing="computes between a and b",
    )


def seen(a: Analysis) -> OwnCode:
    found = looked(a)
    assert isinstance(found, OwnCode)
    return found


def test_it_is_found_with_its_line_its_cost_and_how_sure_that_is() -> None:
    found = seen(lop008(0.2, samples=100))
    assert (found.where, found.ranks, found.level) == (Where(SCRIPT, 57), (), "high")
    assert found.lost_s == pytest.approx(0.2) and found.error == pytest.approx(0.15)
    spent, samples = found.evidence
    assert (spent.metric, spent.value, spent.threshold) == ("step.preparing_s", 0.2, 0.05)
    assert spent.note == "of a 1.00 s step, in which rank 0 computes between a and b"
    assert samples.value == 100 and samples.note == f"{SCRIPT}:57 in train"


def test_ranks_are_named_where_others_do_without() -> None:
    found = seen(lop008(0.2, alone=True))
    assert found.ranks == (1,) and "rank 1 computes" in found.evidence[0].note
    finding = finding_of(
        "XYZ001",
        lop008(alone=True),
        found,
        "It computes",
        fix=Fix("do less"),
        saving=lop008().model.saving(0.8, 0.9, ""),
    )
    assert finding.title == "It computes on rank 1" and finding.scope.ranks == (1,)
    assert (finding.seconds_per_step, finding.severity, finding.confidence) == (found.lost_s, found.level, 0.95)


def test_what_the_slower_rank_hides_costs_nothing() -> None:
    """Rank 0 computes for 0.2 s in a step that rank 1 makes as long."""
    a = lop008(0.2, alone=True)
    swapped = replace(a, values={**a.values, ("step.preparing_s", 0): 0.2, ("step.preparing_s", 1): 0.0})
    assert looked(swapped) == Clear("XYZ001")


def test_what_the_next_rank_takes_as_well_is_no_gain() -> None:
    """Of the 0.2 s that rank 1 computes, rank 0 leaves 0.03."""
    a = lop008(0.2, alone=True)
    assert a.model is not None
    close = {0: rank(0.97), 1: a.model.own[1]}
    assert looked(replace(a, model=replace(a.model, own=close))) == Clear("XYZ001")


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        pytest.param({"spends": 0.049}, Clear("XYZ001"), id="too little"),
        pytest.param({"samples": 9}, Clear("XYZ001"), id="too few samples to name a line"),
        pytest.param({"seen": False, "forward": 0.33}, Clear("XYZ001"), id="a usual forward pass"),
        pytest.param({"seen": False}, NotMeasured("XYZ001", (STEP_PREPARING_S,)), id="a long one without a profile"),
    ],
)
def test_where_no_line_can_be_named_it_is_clear_or_not_measured(
    given: dict[str, Any], outcome: Clear | NotMeasured
) -> None:
    assert looked(lop008(**given)) == outcome


def test_a_line_with_too_few_samples_is_skipped() -> None:
    a = lop008()
    few, many = replace(a.preparing_lines[0], samples=9), replace(a.preparing_lines[0], line=60, samples=40)
    found = looked(a, lines=(few, many))
    assert isinstance(found, OwnCode) and found.where.line == 60
    assert found.error == pytest.approx(1.5 / 7), "all samples measure how long it takes"


@pytest.mark.parametrize(("part", "step_s"), [(0.0, 1.0), (0.5, 0.9), (1.0, 0.8)])
def test_the_step_is_shorter_by_the_part_that_is_removed(part: float, step_s: float) -> None:
    assert step_without(lop008(), {0: 0.2, 1: 0.2}, part) == pytest.approx(step_s)


def test_no_forward_pass_becomes_shorter_than_nothing() -> None:
    assert step_without(lop008(), {0: 9.0, 1: 9.0}, 1.0) == pytest.approx(0.5)
