"""What came first where a job both hung and lost a rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.analysis import Death, Stall
from rn50_advisor.rules.first_ending import died_of_it
from rule_cases import job, rank

HANG = Stall(t_s=100.0, stalled_s=40.0, ended=True, typical_step_s=0.1, p99_step_s=0.2, ranks=())  # began at 60 s


def died(*at_s: float, role: str = "rank") -> tuple[Death, ...]:
    return tuple(Death(n, 100 + n, t_s, None, 9, False, "backward", 7, role) for n, t_s in enumerate(at_s))


@pytest.mark.parametrize(
    ("at_s", "of_it"),
    [
        ((90.0,), True),  # half a minute after the hang began
        ((89.9,), False),  # a rank that dies at once is what the others hang for
        ((115.0,), True),
        ((115.1,), False),  # long after the last look: of something else
        ((110.0, 61.0), False),  # the first death counts
        ((), False),
    ],
)
def test_a_rank_dies_of_a_hang_that_had_lasted_and_was_still_there(at_s: tuple[float, ...], of_it: bool) -> None:
    assert died_of_it(replace(job({0: rank()}), deaths=died(*at_s)), HANG) is of_it


def test_workers_and_hangs_that_passed_end_nothing() -> None:
    a = replace(job({0: rank()}), deaths=died(100.0))
    assert died_of_it(a, HANG)
    assert not died_of_it(a, replace(HANG, resumed=True))
    assert not died_of_it(a, replace(HANG, ended=False))
    assert not died_of_it(replace(a, deaths=died(100.0, role="worker")), HANG)


def test_a_longer_hang_may_be_asked_for() -> None:
    a = replace(job({0: rank()}), deaths=died(100.0))
    assert died_of_it(a, HANG, hangs_after_s=40.0) and not died_of_it(a, HANG, hangs_after_s=41.0)
