"""One rank's trace as tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rn50_advisor.advisor.traces.trace_json import read_trace_file
from rn50_advisor.advisor.traces.traced_rank import TracedRank, traced_rank
from rn50_advisor.probes.rank.layout import FLAG_NO_LOADER, FLAG_TRACED
from traced_loops import SEVERAL, traced_loop, written_trace
from traces import ALL_REDUCE, TraceBook


def rank_of(folder: Path, book: TraceBook, **header: object) -> TracedRank:
    return traced_rank(read_trace_file(written_trace(folder / "t.json", book, **header)), 2, 4)


def test_steps_become_rows_of_nanoseconds(tmp_path: Path) -> None:
    rank = rank_of(tmp_path, traced_loop(steps=4), baseTimeNanoseconds=7_000_000_000)
    assert rank.steps is not None
    row = rank.steps[1]
    assert (row["step"], row["count"], row["samples"], row["micro_batches"]) == (6, 1, 16, 1)
    assert row["t_start_ns"] == 7_000_000_000 + (1_000_000 + 97_500) * 1_000
    assert (row["input_wait_ns"], row["backward_ns"], row["fetches"], row["fetch_ns"]) == (
        2_000_000, 60_000_000, 1, 2_000_000,
    )  # fmt: skip
    assert row["flags"] == FLAG_TRACED


def test_the_fetches_of_workers_are_no_loading_in_the_training_process(tmp_path: Path) -> None:
    rank = rank_of(tmp_path, traced_loop(loader=SEVERAL))
    assert rank.steps is not None
    assert not rank.steps["fetches"].any()


def test_times_on_the_gpu_are_those_of_events_at_the_marks(tmp_path: Path) -> None:
    rank = rank_of(tmp_path, traced_loop(steps=4))
    assert rank.gpu_steps is not None
    row = rank.gpu_steps[2]
    assert row["input_wait_ns"] == pytest.approx(2_000_000, abs=20_000)
    assert row["gap_ns"] == pytest.approx(500_000, abs=20_000)  # of the step before
    assert (rank.gpu_steps["reserved_bytes"] == -1).all()


def test_a_job_on_the_cpu_has_no_times_of_a_gpu(tmp_path: Path) -> None:
    rank = rank_of(tmp_path, traced_loop(on_gpu=False))
    assert (rank.gpu_steps, rank.blind) == (None, False)
    assert rank.window is not None
    assert rank.window.device == "cpu"


def test_calls_without_kernels_are_a_device_that_the_trace_does_not_show(tmp_path: Path) -> None:
    book = traced_loop(on_gpu=False)
    book.call("cudaLaunchKernel", 1_000_100, 5.0)
    rank = rank_of(tmp_path, book)
    assert rank.blind
    assert rank.steps is not None
    assert (rank.steps["flags"] & FLAG_NO_LOADER).all()


def test_collectives_are_exposed_unless_other_kernels_run(tmp_path: Path) -> None:
    rank = rank_of(tmp_path, traced_loop(steps=3, exchange=4_000.0))
    assert rank.comm is not None
    assert np.allclose(rank.comm["comm_ns"], 4_000_000, atol=1_000)
    assert not rank.comm["overlap_ns"].any()
    assert rank.collectives.size == 3


def test_a_collective_that_the_forward_waits_for_is_no_forward(tmp_path: Path) -> None:
    book = traced_loop(steps=3, late=3_000.0)
    for number in range(3):
        at = 1_000_000 + number * 100_500 + 2_100
        book.kernel(ALL_REDUCE, at, 2_800.0, launched=at - 5, stream=20)
    rank = rank_of(tmp_path, book)
    assert rank.gpu_steps is not None
    assert rank.gpu_steps["forward_ns"][1] == pytest.approx(30_200_000, abs=30_000)


def test_the_window_leaves_out_the_step_in_which_the_profiler_starts(tmp_path: Path) -> None:
    many, few = (rank_of(tmp_path, traced_loop(steps=count)).window for count in (4, 2))
    assert many is not None
    assert few is not None
    assert (many.first_step, many.steps) == (6, 3)
    assert (few.first_step, few.steps) == (5, 2)


def test_kernels_of_a_trace_without_steps_are_those_of_all_of_it(tmp_path: Path) -> None:
    book = TraceBook()
    book.kernel(ALL_REDUCE, 1_000.0, 500.0)
    book.kernel(ALL_REDUCE, 2_000.0, 1_000.0)
    window = rank_of(tmp_path, book).window
    assert window is not None
    assert (window.whole, window.steps) == (True, 1)
    assert window.step_s == pytest.approx(0.002)
    assert window.classes["nccl"] == pytest.approx(0.0015)


def test_a_trace_without_steps_has_its_times_alone(tmp_path: Path) -> None:
    book = TraceBook()
    book.host("aten::add", 10.0, 5.0)
    rank = rank_of(tmp_path, book)
    assert (rank.steps, rank.window, rank.begin_ns, rank.end_ns) == (None, None, 10_000, 15_000)
