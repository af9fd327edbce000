"""The number of workers advised fits cores, memory and /dev/shm, and the finding names what binds."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from input_rule_cases import GIB, IN_PROCESS, PICTURES, short_of
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.rules import analysis_reading


@pytest.mark.parametrize(
    ("total_mb", "used", "batch", "room"),
    [
        (8 * GIB, 0.0, PICTURES, 49),  # 0.9 * 8590 / 2 less one batch, over two batches of 38.5 MB
        (1 * GIB, 0.0, PICTURES, 5),
        (1 * GIB, 0.5, PICTURES, 2),
        (64.0, 0.0, PICTURES, 0),  # what containers have
        (64.0, 0.0, 100_000, 143),
    ],
)
def test_so_many_workers_fit_into_shared_memory(total_mb: float, used: float, batch: int, room: int) -> None:
    a = short_of(jobs.dat003(**IN_PROCESS), batch=batch, shm__total_mb=total_mb, shm__used_share=used)
    assert analysis_reading.limits_beside_cores(a) == (("/dev/shm", room),)


def test_batches_on_their_way_do_not_take_room_from_themselves() -> None:
    a = short_of(jobs.dat004(workers=2), shm__total_mb=1000.0, shm__used_share=0.309)  # 2 ranks x 2 workers x 2 batches
    empty = short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=1000.0, shm__used_share=0.0)
    assert analysis_reading.limits_beside_cores(a) == analysis_reading.limits_beside_cores(empty)


@pytest.mark.parametrize(
    ("worker_mb", "left_mb", "room"),
    [(500.0, 10_000.0, 2 + 6), (500.0, 1000.0, 2), (2000.0, 100_000.0, 2 + 19), (500.0, 0.0, 2)],
)
def test_so_many_workers_fit_into_memory(worker_mb: float, left_mb: float, room: int) -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=worker_mb, memory__headroom_mb=left_mb)
    assert analysis_reading.limits_beside_cores(a) == (("the memory", room),)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"memory__worker_mb": 500.0},
        {"shm__total_mb": 64.0},
        {"shm__total_mb": 0.0, "shm__used_share": 0.0},
    ],
)
def test_what_was_not_measured_limits_nothing(values: dict[str, float]) -> None:
    assert analysis_reading.limits_beside_cores(short_of(jobs.dat004(), batch=None, **values)) == ()
    assert analysis_reading.limits_beside_cores(short_of(jobs.dat004(), **values)) == ()


@pytest.mark.parametrize(
    ("job", "left_mb", "room"),
    [
        (jobs.dat003(**IN_PROCESS), 1000.0, 1),  # 0.8 * 1000 / 2 over 140 and two batches of 38.5 MB
        (jobs.dat003(**IN_PROCESS), 200.0, 0),
        (jobs.dat004(workers=2), 1000.0, 2 + 1),
    ],
)
def test_where_no_worker_was_seen_memory_is_shared_out_by_what_others_took(
    job: Analysis, left_mb: float, room: int
) -> None:
    assert analysis_reading.limits_beside_cores(short_of(job, memory__headroom_mb=left_mb)) == (
        ("the memory (140 MB each)", room),
    )


def test_the_cap_is_the_least_of_all() -> None:
    whole = jobs.dat004(workers=2)
    assert analysis_reading.worker_cap(whole) == 7
    assert analysis_reading.worker_cap(short_of(whole, memory__worker_mb=500.0, memory__headroom_mb=1000.0)) == 2
    assert analysis_reading.worker_cap(short_of(whole, shm__total_mb=GIB, shm__used_share=0.0)) == 5
    unknown = replace(whole, values={k: v for k, v in whole.values.items() if k[0] != "cpu.allowed_cores"})
    assert analysis_reading.worker_cap(unknown) is None
    assert analysis_reading.worker_cap(short_of(unknown, shm__total_mb=GIB, shm__used_share=0.0)) == 5
