"""Deaths of processes: who had a reason of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.incidents import Death

DEATH = Death(0, 100, 12.0, 1, None, False, "backward", 7)


@pytest.mark.parametrize(
    ("given", "by_itself"),
    [
        ({}, False),
        ({"signal": 15}, False),  # it was asked to end
        ({"signal": 9}, False),
        ({"signal": 9, "oom_killed": True}, True),
        ({"signal": 11}, True),
        ({"signal": 7}, True),
        ({"exception": "ValueError: x"}, True),
        ({"exception": "RuntimeError: Connection closed by peer", "follows": True}, False),
        ({"exception": "RuntimeError: x", "follows": True, "signal": 11}, True),
    ],
)
def test_a_process_fails_by_itself_by_a_crash_or_an_exception_of_its_own(
    given: dict[str, Any], by_itself: bool
) -> None:
    assert replace(DEATH, **given).failed_by_itself is by_itself
