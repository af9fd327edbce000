"""What a check found, and how sure that is."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import (
    Band,
)
from rn50_advisor.advisor.triage.found_checks import judged, state_of, unproved
from triage_samples import one


@pytest.mark.parametrize(
    ("value", "band", "strict", "state"),
    [
        (100.0, Band(100.0, None), False, "ok"),  # on the line
        (99.9, Band(100.0, None), False, "low"),
        (50.0, Band(100.0, None), False, "low"),
        (49.9, Band(100.0, None), False, "bad"),
        (99.9, Band(100.0, None), True, "bad"),
        (0.05, Band(None, 0.05), True, "ok"),
        (0.051, Band(None, 0.05), True, "bad"),
        (0.1, Band(None, 0.05), False, "low"),
        (0.11, Band(None, 0.05), False, "bad"),
        (1.0, Band(None, 0.0), False, "bad"),
        (7.0, Band(), False, "ok"),
        (None, Band(1.0, None), False, "unknown"),
    ],
)
def test_a_band_makes_the_state(value: float | None, band: Band, strict: bool, state: str) -> None:
    assert state_of(value, band, strict=strict) == state


@pytest.mark.parametrize(
    ("value", "band", "bad_share", "state"),
    [
        (74.9, Band(100.0, None), 0.75, "bad"),
        (75.0, Band(100.0, None), 0.75, "low"),
        (99.9, Band(100.0, None), 1.0, "bad"),  # of one model nothing outside is merely low
        (100.0, Band(100.0, None), 1.0, "ok"),
        (1.0, Band(100.0, None), 0.0, "low"),  # never bad
        (1e9, Band(None, 100.0), 0.0, "low"),
        (130.0, Band(None, 100.0), 0.75, "low"),
        (134.0, Band(None, 100.0), 0.75, "bad"),
    ],
)
def test_from_where_on_it_is_bad_is_said_by_whoever_judges(
    value: float, band: Band, bad_share: float, state: str
) -> None:
    assert state_of(value, band, bad_share=bad_share) == state
    assert judged("x", value, "", band, bad_share=bad_share).check.state == state


def test_what_is_unproved_keeps_its_number_and_says_why() -> None:
    check = unproved(one(1, "hand-back"), "others were busy").check
    assert (check.value, check.state, check.hint) == (1, "unknown", "others were busy")
