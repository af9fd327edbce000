"""Bytes that the job's readers asked for and read, by the kernel's account of each process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import (
    FIRST_STEP_NS,
    SECOND,
    plan,
    rank_process,
    recording,
    series,
)
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.analysis.storage.process_io import grown, growth, readers_of
from storage_recordings import DISK, WORKER, disk, io, job


def test_what_comes_out_of_the_page_cache_is_what_was_asked_for_and_not_read() -> None:
    found = job({**disk(), **io(80, 20)}, DISK)
    assert found.get("storage.cache_hit_share") == pytest.approx(0.75)
    assert found.get("storage.asked_mb_s") == pytest.approx(80)
    assert found.get("storage.sample_kb") == pytest.approx(1000)  # 80 samples a second
    assert found.get("storage.job_share") == pytest.approx(0.4)


def test_reading_ahead_is_no_negative_share() -> None:
    assert job({**disk(), **io(50, 55)}, DISK).get("storage.cache_hit_share") == 0.0


def test_a_worker_born_meanwhile_had_read_nothing_before() -> None:
    born = replace(WORKER, first_seen_ns=FIRST_STEP_NS + 5 * SECOND)
    readings = {"rchar_bytes": ((6, 40e6), (9, 100e6)), "read_bytes": ((6, 10e6), (9, 25e6))}
    samples = {(f"proc.{name}", "pid:200"): series(*rows) for name, rows in readings.items()}
    found = job(samples, DISK, workers=(born,))
    steady_s = 9.7
    assert found.get("storage.asked_mb_s") == pytest.approx(100 / steady_s, rel=0.02)
    assert found.get("storage.cache_hit_share") == pytest.approx(0.75)


def test_without_workers_the_rank_is_the_reader() -> None:
    found = job({**disk(), **io(80, 20, pid=100)}, DISK, workers=())
    assert found.get("storage.cache_hit_share") == pytest.approx(0.75)


START, END = FIRST_STEP_NS, FIRST_STEP_NS + 10 * SECOND


def test_workers_read_for_their_rank_and_ranks_without_any_for_themselves() -> None:
    made = recording({0: plan(3), 1: plan(3)})
    worker, elsewhere = (rank_process(rank, pid=200 + rank, role="worker", worker=0) for rank in (1, 7))
    known = replace(made, processes=(*made.processes, worker, elsewhere))
    assert [p.pid for p in readers_of(known, all_steps(known))] == [201, 100]
    assert [p.pid for p in readers_of(made, all_steps(made))] == [100, 101]
    assert readers_of(made, {}) == ()


@pytest.mark.parametrize(
    ("readings", "born_s", "grew"),
    [
        ([(0, 5.0), (10, 25.0)], None, 20.0),
        ([(-10, 5.0), (10, 25.0)], None, 10.0),  # evenly between two readings
        ([(0, 5.0), (4, 9.0), (5, 1.0), (10, 3.0)], None, 6.0),  # it was reset, and counts on
        ([(5, 8.0), (10, 10.0)], None, 2.0),  # what came before the first reading is not known
        ([(5, 8.0), (10, 10.0)], 1, 10.0),  # it was born in this time, and had counted nothing
        ([(5, 8.0), (10, 10.0)], -5, 6.0),  # before it: half of that
        ([(20, 8.0)], None, 0.0),
    ],
)
def test_growth_between_two_moments(readings: list[tuple[float, float]], born_s: float | None, grew: float) -> None:
    born_ns = None if born_s is None else FIRST_STEP_NS + int(born_s * SECOND)
    assert growth(series(*readings), born_ns, START, END) == pytest.approx(grew)


def test_processes_grow_together_and_unknown_ones_make_no_sum() -> None:
    samples = {("proc.read_bytes", f"pid:{pid}"): series((0, 0.0), (10, 10.0 * pid)) for pid in (100, 101)}
    samples["proc.read_bytes", "pid:102"] = series()
    made = recording({0: plan(3), 1: plan(3), 2: plan(3)}, samples=samples)
    assert grown(made, made.processes, "proc.read_bytes", START, END) == pytest.approx(2010.0)
    assert grown(made, made.processes, "proc.write_bytes", START, END) is None
    assert grown(made, made.processes[2:], "proc.read_bytes", START, END) is None


@pytest.mark.parametrize(("left_out_ns", "known"), [(None, True), (START - 1, True), (START + 1, False)])
def test_where_the_run_lists_not_all_that_ended_meanwhile_no_sum_is_known(left_out_ns: int | None, known: bool) -> None:
    samples = {("proc.read_bytes", "pid:100"): series((0, 0.0), (10, 10.0))}
    made = recording({0: plan(3)}, samples=samples, meta={"left_out_until_ns": left_out_ns})
    assert (grown(made, made.processes, "proc.read_bytes", START, END) is not None) is known
