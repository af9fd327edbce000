"""The tables of providers: each measure has one, what it needs comes before, and values have the scope of their measure."""

from __future__ import annotations

from recordings import plan, recording
from rn50_advisor.advisor.analysis import measures
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.providers import in_order
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure, JobMeasure, MountMeasure, RankMeasure

TABLES = (measures.OF_STEADY_STEPS, measures.OF_RUNS, measures.OF_MODELS)


def test_each_measure_is_given_by_one_provider() -> None:
    given = [each for table in TABLES for provider in table for each in provider.gives]
    assert len(given) == len(set(given)), sorted(each for each in given if given.count(each) > 1)
    assert set(given) == set(MEASURES.values())


def test_what_is_needed_is_given_in_the_same_table_or_before() -> None:
    known: set[str] = set()
    for table in TABLES:
        ordered = in_order(table)
        for provider in ordered:
            assert provider.needs <= known, provider.needs - known
            known |= provider.gives


def test_values_have_the_scope_of_their_measure() -> None:
    for given, scope in analyse(recording({0: plan(), 1: plan()})).values:
        if isinstance(given, (RankMeasure, GpuMeasure)):
            assert isinstance(scope, int) or (isinstance(given, JobMeasure) and scope == JOB), given
        elif not isinstance(given, MountMeasure):
            assert scope == JOB or not isinstance(scope, str), given
