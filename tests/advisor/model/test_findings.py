"""The results of rules: evidence, fixes and predicted savings."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Evidence, Fix, Saving, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S


def test_evidence_has_the_name_and_the_unit_of_its_measure() -> None:
    row = Evidence.of(STEP_TIME_S, 0.3, 0.2, "of a step")
    assert (row.metric, row.value, row.unit, row.threshold, row.note) == ("step.time_s", 0.3, "s", 0.2, "of a step")
    assert type(row.metric) is str and Evidence.of(STEP_TIME_S, 0.3, unit="share").unit == "share"
    assert Evidence.of(STEP_TIME_S, 0.3, unit="").unit == "", "no unit may be wanted"


def test_a_fix_is_shown_as_the_call_that_it_makes() -> None:
    call, where = CallChange.of("DataLoader", num_workers=6), Where("train.py", 7)
    fix = Fix.of("more workers", call, where, "one line", more="  # of 8 cores")
    assert (fix.change, fix.call, fix.where, fix.effort) == (
        "DataLoader(..., num_workers=6)  # of 8 cores",
        call,
        where,
        "one line",
    )


@pytest.mark.parametrize(
    ("speedup", "gain", "vague"),
    [
        ((1.2, 1.5), True, False),
        ((0.9, 1.004), False, False),
        ((1.0, 1.005), True, False),
        ((1.0, 2.0), True, False),
        ((1.0, 2.01), True, True),
    ],
)
def test_a_gain_is_recognised_and_a_wide_range_is_vague(speedup: tuple[float, float], gain: bool, vague: bool) -> None:
    saving = Saving((0.0, 0.1), speedup, "")
    assert (saving.is_gain, saving.is_vague) == (gain, vague)
