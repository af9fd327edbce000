"""Values by measure and scope: read for one scope or for all ranks, with the reason where one is missing."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.measures.measure import JOB, JobAndRankMeasure, JobMeasure, MountMeasure, RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured

STEP_S = JobAndRankMeasure("test.step_s", "s", "a step")
WAIT_S = RankMeasure("test.wait_s", "s", "a wait")
READ_MB = MountMeasure("test.read_mb", "MB", "bytes read")
CORES = JobMeasure("test.cores", "cores", "cores")


@pytest.fixture
def values() -> Measured:
    return Measured({(STEP_S, JOB): 1.0, (STEP_S, 1): 1.2, (STEP_S, 0): 0.9, (WAIT_S, 3): 0.1, (READ_MB, "/data"): 7.0})


def test_a_value_is_read_by_measure_and_scope(values: Measured) -> None:
    assert values[STEP_S, JOB] == 1.0 and values[READ_MB, "/data"] == 7.0
    assert values.get((WAIT_S, 0)) is None and values.get((WAIT_S, 0), 0.0) == 0.0
    with pytest.raises(KeyError):
        values[WAIT_S, 0]
    assert len(values) == 5 and set(values.measures()) == {STEP_S, WAIT_S, READ_MB}
    del values[WAIT_S, 3]
    assert not values.has(WAIT_S) and len(values) == 4


def test_the_values_of_ranks_come_in_order_and_without_the_jobs(values: Measured) -> None:
    assert list(values.by_rank(STEP_S).items()) == [(0, 0.9), (1, 1.2)]


def test_the_reason_of_a_rank_comes_before_the_jobs(values: Measured) -> None:
    values.missing[WAIT_S, JOB] = "no loader"
    values.missing[WAIT_S, 2] = "rank 2 died"
    assert values.why(WAIT_S) == "no loader" and values.why(WAIT_S, 2) == "rank 2 died"
    assert values.why(WAIT_S, 0) == "rank 2 died", "the latest one, where a rank has none of its own"
    assert values.why(CORES) == ""


def test_what_is_added_wins(values: Measured) -> None:
    other = Measured({(STEP_S, JOB): 2.0, (CORES, JOB): 8.0})
    other.missing[WAIT_S, JOB] = "too short"
    values.missing[WAIT_S, JOB] = "no loader"
    values.add(other)
    assert (values[STEP_S, JOB], values[STEP_S, 1], values[CORES, JOB]) == (2.0, 1.2, 8.0)
    assert values.why(WAIT_S) == "too short"


def test_a_reader_gets_the_measures_that_it_declared_and_no_others(values: Measured) -> None:
    values.missing[CORES, JOB] = "no permission"
    read = values.only(frozenset({STEP_S, CORES}))
    assert read[STEP_S, 1] == 1.2 and read.why(CORES) == "no permission" and len(read) == 3
    with pytest.raises(LookupError, match=r"test\.wait_s is read and not declared as needed"):
        read.get((WAIT_S, 3))
    with pytest.raises(LookupError, match="not declared"):
        read.why(READ_MB)
    assert values[WAIT_S, 3] == 0.1, "the original stays open"
