"""Contention for cores that workers cause, and the step with less work for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.input.sample_cost import SampleCost
from rn50_advisor.rules.data_loading.preprocessing import (
    crowd_s,
    crowding_by_workers,
    read_for_nothing,
    step_with_less_work,
)
from rule_cases import job, rank


@pytest.mark.parametrize(
    ("read_kb", "batch_bytes", "says"),
    [
        (2393.0, 2e6, "of 2,393 KB read for a sample 125 KB are in its batch: read that part"),
        (500.0, 2e6, "of 500 KB read"),
        (499.0, 2e6, ""),
        (2393.0, None, ""),
        (None, 2e6, ""),
    ],
)
def test_what_is_read_of_each_file_and_never_reaches_a_batch(
    read_kb: float | None, batch_bytes: float | None, says: str
) -> None:
    values = {"step.samples": 32.0, "step.batches": {0: 2.0}} | (
        {} if read_kb is None else {"storage.sample_kb": read_kb}
    )
    cost = SampleCost(looks=9, cpu_s=0.1, wall_s=0.1, batch_bytes=batch_bytes)
    said = read_for_nothing(job({0: rank(input_wait=0.3)}, values=values, sample=cost))
    assert said.startswith(says) if says else said == ""


def crowded(*, cpu: float = 0.9, workers: int = 2, others: float = 0.0, **more: float) -> Analysis:
    """Two ranks that wait for a core, 0.2 and 0.4 s a step, while workers make a batch of a second; the job keeps 4 cores busy."""
    own = {0: rank(input_wait=0.3), 1: rank(input_wait=0.3)}
    each = {
        "fetch.cpu_share": cpu,
        "fetch.wall_s": 1.0,
        "loader.workers": float(workers),
        "step.batches": 1.0,
    }
    values = {name: {0: value, 1: value} for name, value in each.items()}
    return job(own, values={**values, "step.run_delay_s": {0: 0.2, 1: 0.4}, "cpu.other_cores": others, **more})


def test_ranks_wait_for_cores_that_their_own_workers_keep_busy() -> None:
    assert crowding_by_workers(crowded(), 0.2) == pytest.approx({0: 0.2, 1: 0.4})
    assert crowd_s(crowded(), 0.2) == pytest.approx(0.2), "half of the ranks wait for so long"


@pytest.mark.parametrize(
    ("threads", "waiting", "seconds"),
    [
        (1.0, 0.9, 0.2),
        (2.0, 0.6, 0.2 + 0.75 * 0.4),
        (2.0, 0.1, 0.2),
        (5.0, 1.0, 0.2 + 0.75 * 0.8 / 4),
    ],
    ids=["one thread", "two threads", "less than the training thread alone", "the mean of several"],
)
def test_a_parallel_region_ends_with_its_last_thread(threads: float, waiting: float, seconds: float) -> None:
    """Rank 0 waits 0.2 s of a step itself, and with all of its threads so many seconds."""
    a = crowded(**{"threads.intra_op": {0: threads, 1: threads}, "threads.waiting": {0: waiting, 1: waiting}})
    assert crowding_by_workers(a, 0.2)[0] == pytest.approx(seconds)
    assert crowd_s(a, 0.2) == pytest.approx(0.2), "a finding begins at the training thread's own wait"


@pytest.mark.parametrize(("threads", "left"), [(1.0, 0.9), (2.0, 0.8)], ids=["one", "two spin for each other"])
def test_the_cpu_time_that_is_left_leaves_out_spinning_threads(threads: float, left: float) -> None:
    """Of 4 s of CPU time on 4 cores, 0.4 s are the workers'; at most all of the wait goes, 0.4 s with two threads."""
    a = crowded(**{"threads.intra_op": {0: threads, 1: threads}, "threads.waiting": {0: 0.4, 1: 0.4}})
    assert a.model is not None
    a = replace(a, model=replace(a.model, job_cpu_s=4.0, allowed_cores=4.0))
    assert step_with_less_work(a, {0: 0.2, 1: 0.2}, 1.0, 0.4) == pytest.approx(left)


def test_neighbours_take_their_share_of_the_wait() -> None:
    beside = crowded(others=14.0, **{"cpu.host_busy_cores": 18.0})
    assert 0.0 < crowd_s(beside, 0.2) < 0.2


@pytest.mark.parametrize(("least_share", "contends"), [(0.45, True), (0.4501, False)])
def test_workers_that_use_little_cpu_time_cause_no_contention(least_share: float, contends: bool) -> None:
    """Twice 0.9 CPU seconds of the 4 that the job takes in a step."""
    assert bool(crowding_by_workers(crowded(), least_share)) is contends
    assert (crowd_s(crowded(), least_share) > 0.0) is contends


def test_without_workers_there_is_no_contention_by_them() -> None:
    assert crowding_by_workers(crowded(workers=0), 0.2) == {}


@pytest.mark.parametrize(
    ("share", "spared_s", "floor_s", "step_s"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (1.0, 0.0, 0.0, 0.5),  # neither 0.3 s of input nor 0.2 s in line for a core
        (0.5, 0.0, 0.0, 0.75),
        (1.0, 0.0, 0.9, 0.9),
    ],
)
def test_the_step_loses_its_wait_and_its_contention(
    share: float, spared_s: float, floor_s: float, step_s: float
) -> None:
    a = crowded(**{"cpu.job_cores": 4.0})
    crowding = {0: 0.2, 1: 0.2}
    assert step_with_less_work(a, crowding, share, spared_s, floor_s=floor_s) == pytest.approx(step_s)


def test_no_step_is_shorter_than_what_is_left_for_the_cores() -> None:
    """Of 12 CPU seconds 2 are spared; ten on 16 cores take 0.625 s."""
    a = job({0: rank(input_wait=0.8)}, job_cores=12.0)
    assert step_with_less_work(a, {}, 1.0, 2.0) == pytest.approx(0.625)
    assert step_with_less_work(a, {}, 1.0, 12.0) == pytest.approx(0.2)


def test_the_epoch_start_stays() -> None:
    a = job({0: rank(input_wait=0.3)}, values={"step.epoch_start_s": {0: 0.1}, "step.index_s": {0: 0.05}})
    assert step_with_less_work(a, {}, 1.0, 0.0) == pytest.approx(0.85)
