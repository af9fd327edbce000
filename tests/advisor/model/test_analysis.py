"""Asking an analysis for its values: by rank, of whatever scope, and without going through all of them each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.analysis import JOB, Analysis
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ
from rn50_advisor.advisor.model.measures.measure import Scoped
from rn50_advisor.advisor.model.measures.step_measures import STEP_GAP_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import StepTime, Throughput

META = Meta("job", ("python",), "/job", "node", 0.0, 0, 1)


class Counted(dict[Scoped, float]):
    """Counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[Scoped]:
        self.walks += 1
        return super().__iter__()


def asked(values: Mapping[Scoped, float]) -> Analysis:
    return Analysis(META, 2, StepTime(1.0, 1.0, 9, 9), Throughput(None, None, None, 2), values=values)


def test_values_are_found_by_rank_in_the_ranks_order_and_by_any_scope() -> None:
    analysis = asked(
        {(STEP_SAMPLES, 10): 3.0, (STEP_SAMPLES, 2): 1.0, (STEP_SAMPLES, JOB): 2.0, (GPU_CLOCK_MHZ, 0): 4.0}
    )
    assert list(analysis.by_rank(STEP_SAMPLES).items()) == [(2, 1.0), (10, 3.0)]
    assert (analysis.get(STEP_SAMPLES), analysis.get(STEP_SAMPLES, 2), analysis.get(STEP_SAMPLES, 3)) == (
        2.0,
        1.0,
        None,
    )
    assert analysis.of_gpu(GPU_CLOCK_MHZ, 0) == 4.0 and analysis.of_gpu(GPU_CLOCK_MHZ, 1) is None
    assert analysis.has(GPU_CLOCK_MHZ) and not analysis.has(STEP_GAP_S) and analysis.by_rank(STEP_GAP_S) == {}
    with pytest.raises(KeyError):
        analysis.value(STEP_TIME_S)


def test_other_values_are_asked_anew() -> None:
    analysis = asked({(STEP_GAP_S, 0): 1.0})
    assert analysis.has(STEP_GAP_S)
    assert replace(analysis, values={(STEP_SAMPLES, 0): 2.0}).by_rank(STEP_SAMPLES) == {0: 2.0}


def test_many_questions_go_through_the_values_once() -> None:
    values = Counted({(STEP_GAP_S, n): float(n) for n in range(9)})
    analysis = asked(values)
    for measure in (STEP_GAP_S, STEP_SAMPLES):
        analysis.by_rank(measure)
        analysis.has(measure)
    assert values.walks == 1


def test_reasons_keep_the_rank_that_they_are_of() -> None:
    analysis = replace(asked({}), reasons={(STEP_GAP_S, 0): "no loader", (STEP_GAP_S, 1): "another library"})
    assert analysis.missing == {STEP_GAP_S: "another library"}
