"""A measure is its name, with a unit and a description that nobody changes."""

from __future__ import annotations

import copy
import pickle

import pytest

from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S

WAIT_S = RankMeasure("test.wait_s", "s", "time that a test waits")


def test_a_measure_is_its_name_with_a_unit_and_a_description() -> None:
    assert WAIT_S == "test.wait_s" and WAIT_S.name == "test.wait_s"
    assert (WAIT_S.unit, WAIT_S.what) == ("s", "time that a test waits")
    assert {"test.wait_s": 1}[WAIT_S] == 1, "rules of other distributions name measures by strings"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda measure: pickle.loads(pickle.dumps(measure))])
def test_a_copy_is_the_same_measure(again) -> None:
    for measure in (WAIT_S, STEP_TIME_S):
        made = again(measure)
        assert (type(made), made, made.unit, made.what) == (type(measure), measure, measure.unit, measure.what)


@pytest.mark.parametrize("name", ["unit", "what", "name"])
def test_a_measure_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError, match=r"test\.wait_s is declared once"):
        setattr(WAIT_S, name, "ms")
