"""Whose cores they are: what idles for a job within a quota, an affinity or a busy host, and what neighbours take."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.free_cores import Cores


def test_on_a_host_of_ones_own_idle_is_what_nobody_uses() -> None:
    cores = Cores(allowed=8, job=3, busy=5, others=2, host=8, affinity=8)
    assert (cores.idle, cores.taken) == (3, 2)


def test_within_a_quota_neighbours_on_the_rest_of_the_host_take_nothing() -> None:
    cores = Cores(allowed=8, job=2, busy=42, others=40, host=64, affinity=64)
    assert (cores.idle, cores.taken) == (6, 0)


def test_within_a_quota_neighbours_take_what_goes_beyond_the_rest() -> None:
    cores = Cores(allowed=8, job=2, busy=63, others=61, host=64, affinity=64)
    assert (cores.idle, cores.taken) == (1, 5)


def test_cores_that_an_affinity_leaves_to_others_are_theirs() -> None:
    crowded_by_itself = Cores(allowed=4, job=4, busy=34, others=30, host=64, affinity=4)
    assert (crowded_by_itself.idle, crowded_by_itself.taken) == (0, 0)
    shared = Cores(allowed=4, job=2, busy=32, others=30, host=64, affinity=4)
    assert (shared.idle, shared.taken) == (2, 2)


def test_stolen_cores_idle_for_nobody() -> None:
    assert Cores(allowed=8, job=5, busy=5, others=0, host=8, stolen=2).idle == 1


@pytest.mark.parametrize("host", [None, 4.0])
def test_what_nobody_saw_is_not_taken_and_not_more_than_allowed(host: float | None) -> None:
    cores = Cores(allowed=4, job=1, busy=3, host=host)
    assert (cores.idle, cores.taken) == (1, None)
