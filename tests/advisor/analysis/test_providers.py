"""The table of providers: who gives what, from what, and in which order."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.providers import Provider, in_order, named, provide
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_GAP_S, STEP_GC_S, STEP_TIME_S
from rn50_advisor.advisor.verdict.diagnose import diagnose


def gives(name: str, *needs: str) -> Provider[None]:
    given = MEASURES[name]
    return Provider(lambda _, known: Measured({(given, 0): float(len(known))}), named(name), named(*needs))


def order(providers: Iterable[Provider[None]]) -> list[str]:
    return [str(given) for provider in in_order(providers) for given in provider.gives]


def test_the_order_follows_from_what_is_needed() -> None:
    table = [gives("step.gc_s", "step.gap_s"), gives("step.own_s"), gives("step.gap_s", "step.own_s")]
    assert order(table) == ["step.own_s", "step.gap_s", "step.gc_s"]


def test_two_that_give_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two providers give step\.gap_s"):
        in_order([gives("step.gap_s"), gives("step.gap_s", "step.gc_s")])


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="needs itself"):
        in_order([gives("step.gap_s", "step.gc_s"), gives("step.gc_s", "step.gap_s")])


def test_a_provider_sees_what_it_needs_and_no_more() -> None:
    known = Measured({(STEP_TIME_S, JOB): 1.0, (STEP_GC_S, 0): 0.5})
    assert provide([gives("step.gap_s", "step.gc_s")], None, known)[STEP_GAP_S, 0] == 1.0


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda known: known.get((STEP_GC_S, 0)), id="a value"),
        pytest.param(lambda known: known.by_rank(STEP_GC_S), id="those of all ranks"),
        pytest.param(lambda known: known.why(STEP_GC_S), id="why there is none"),
    ],
)
def test_reading_an_undeclared_measure_fails(read) -> None:
    def careless(_: None, known: Measured) -> Measured:
        read(known)
        return Measured()

    with pytest.raises(LookupError, match=r"step\.gc_s is read and not declared"):
        provide([Provider(careless, named("step.gap_s"), named("step.time_s"))], None)


def test_giving_an_undeclared_measure_fails() -> None:
    stray: Provider[None] = Provider(lambda _, known: Measured({(STEP_GC_S, 0): 1.0}), named("step.gap_s"))
    with pytest.raises(LookupError, match=r"step\.gc_s is given and not declared"):
        provide([stray], None)


def test_patterns_that_name_no_measure_are_refused() -> None:
    with pytest.raises(KeyError, match="gasp"):
        named("step.gap_s", "step.gasp*")


def test_reports_have_names_in_place_of_measures() -> None:
    report = diagnose(recording({0: plan(), 1: plan()}, facts={100: {"cuda": {"name": "A100"}}}))
    assert report.gaps and report.outcomes
    assert {type(gap.metric) for gap in report.gaps} == {str}
    assert {type(name) for row in report.outcomes for name in row.missing} == {str}
    assert {type(row.metric) for finding in report.findings for row in finding.evidence} <= {str}


def test_a_measure_stays_as_it_was_declared() -> None:
    with pytest.raises(AttributeError, match="declared once"):
        STEP_TIME_S.unit = "ms"
    assert copy.deepcopy(STEP_TIME_S) == STEP_TIME_S and copy.deepcopy(STEP_TIME_S).unit == "s"


def test_a_measure_is_its_name_for_whoever_asks_by_it() -> None:
    assert MEASURES["step.time_s"] is STEP_TIME_S == "step.time_s" and STEP_TIME_S.unit == "s" and STEP_TIME_S.what
