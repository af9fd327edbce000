"""The input of the forecast over worker counts: batches and steps of each rank of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import batches, epoch_starts, plan, recording, series, steady_counter, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.forecast.worker_model import CROWDING, WorkerFeed
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Node, Recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}
MADE = {"wall": 80, "cpu": 60, "delay": 10, "wait": 20, "system": 5}


def rows(count: int = 28, **given: float) -> list[dict[str, float]]:
    return [{**MADE, "start": 0.1 * n, "worker": n % 2, "pid": 200 + n % 2, **given} for n in range(count)]


def fed(made: list[dict[str, float]], loader: Mapping[str, Any] = TRAIN, **more: Any) -> Recording:
    own = more.pop("own", plan())
    return recording({0: own}, batches={0: batches(made)}, facts={100: {"loaders": [dict(loader)]}}, **more)


def feed(made: Recording, rank: int = 0) -> WorkerFeed:
    model = analyse(made).workers
    assert model is not None
    return model.feeds[rank]


def test_batches_of_workers_are_computing_and_waiting_and_the_line_at_the_cores_is_left_out() -> None:
    found = feed(fed(rows()))
    assert np.mean(found.computing_s) == pytest.approx(0.06) and np.mean(found.waiting_s) == pytest.approx(0.01)
    assert (found.workers, found.prefetch, found.kernel_s) == (2, 2, pytest.approx(0.005))
    assert found.reading_s == 0.0, "nothing was read"


def test_kernel_time_beyond_what_shared_memory_takes_is_the_samples_own() -> None:
    reading = rows(system=50)
    assert feed(fed(reading)).kernel_s == pytest.approx(0.05), "of batches of unknown size it may be all"
    small = feed(fed(reading, loader={**TRAIN, "batch_bytes": 1_000_000}))
    assert small.kernel_s == pytest.approx(0.005)
    assert small.in_place_s[0] == pytest.approx(0.07 - 0.005 - 0.0006)


def test_waiting_is_reading_where_blocks_were_read() -> None:
    assert feed(fed(rows(blocks=200))).reading_s == pytest.approx(0.01)


def test_a_disk_that_gives_no_more_is_shared_by_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Measured({("storage.read_mb_s", "job"): 1.0, ("storage.limit_mb_s", "job"): 1.0})
    monkeypatch.setattr("rn50_advisor.advisor.analysis.measures.storage_values", lambda *args: known)
    reading = rows(blocks=200)  # 12.8 kB a sample: 78 samples a second
    assert feed(fed(reading)).full_s == pytest.approx(8 * 0.0128)
    loaders = {100 + rank: {"loaders": [TRAIN]} for rank in (0, 1)}
    both = recording({0: plan(), 1: plan()}, batches={0: batches(reading), 1: batches(reading)}, facts=loaders)
    assert feed(both).full_s == pytest.approx(2 * 8 * 0.0128)
    known["storage.limit_mb_s", "job"] = 4.0
    assert feed(fed(reading)).full_s == pytest.approx(8 * 0.0032), "a limit holds before it is reached"


def test_each_host_reads_from_a_disk_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's disk is shared by its own ranks, not by all."""
    known = Measured({("storage.read_mb_s", "job"): 1.0, ("storage.limit_mb_s", "job"): 1.0})
    monkeypatch.setattr("rn50_advisor.advisor.analysis.measures.storage_values", lambda *args: known)
    loaders = {100 + rank: {"loaders": [TRAIN]} for rank in (0, 1)}
    made = recording(
        {0: plan(), 1: plan()}, batches={rank: batches(rows(blocks=200)) for rank in (0, 1)}, facts=loaders
    )
    nodes = tuple(Node(n, f"node{n}", (n,), made, shown=n == 0) for n in (0, 1))
    made = replace(made, nodes=nodes)
    assert feed(made).full_s == pytest.approx(8 * 0.0128)
    storage = next(c for c in analyse(made).capacities if c.stage == "storage")
    assert storage.samples_per_s == pytest.approx(2 * 1e6 / 12_800)


def test_every_kind_of_batch_is_played_in_its_share() -> None:
    many = rows(280, wall=20, cpu=20, delay=0)
    many = [
        {**row, "start": 0.01 * n, "wall": 120.0, "cpu": 120.0} if n % 10 == 0 else {**row, "start": 0.01 * n}
        for n, row in enumerate(many)
    ]
    played = np.array(feed(fed(many)).computing_s)
    assert played.mean() == pytest.approx(0.03, rel=0.02)
    assert 0.06 <= (played > 3 * np.median(played)).mean() <= 0.15


def test_in_the_training_process_batches_are_those_of_the_steps_that_were_timed() -> None:
    timed = {"fetches": 1, "fetch": 50, "fetch_cpu": 30, "fetch_delay": 5}
    own = [step(input_wait=60, **(timed if n % 2 else {})) for n in range(40)]
    found = feed(recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": 0}]}}))
    assert found.workers == 0
    assert np.mean(found.computing_s) == pytest.approx(0.03) and np.mean(found.waiting_s) == pytest.approx(0.015)
    assert found.hand_over_s[0] < found.hand_over_s[1], "nobody has seen a batch handed over"


def test_first_batches_of_epochs_are_counted_where_no_worker_makes_them_yet() -> None:
    timed = {"fetches": 1, "fetch": 50, "fetch_cpu": 30, "fetch_delay": 5}
    own = epoch_starts(plan(43, input_wait=60, **timed), 10)
    found = feed(recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": 0}]}}))
    assert found.first_s == pytest.approx(4 * 0.045 / 40, rel=0.05), "45 ms at four begins"
    assert feed(fed(rows(), own=epoch_starts(plan(43), 10))).first_s == 0.0, "there it is measured"


def test_larger_batches_are_expected_to_take_longer_to_hand_over() -> None:
    timed = {"fetches": 1, "fetch": 50, "fetch_cpu": 30, "fetch_delay": 5}
    small, large = (
        feed(
            recording(
                {0: plan(30, input_wait=60, **timed)},
                facts={100: {"loaders": [{**TRAIN, "num_workers": 0, "batch_bytes": size}]}},
            )
        )
        for size in (10_000, 100_000_000)
    )
    assert large.moved_s[0] > 0.02 > small.moved_s[1] > small.moved_s[0] > 0.0
    assert feed(fed(rows())).moved_s == (0.0, 0.0), "in workers it is measured"
    assert large.hand_over_s[0] > small.hand_over_s[0] and large.hand_over_s[1] > 0.01 > small.hand_over_s[1]


def test_what_a_rank_does_between_batches_varies_as_it_did() -> None:
    own = [step(forward=30 if n % 2 else 60) for n in range(60)]
    rest = np.array(feed(fed(rows(), own=own)).rest_s)
    assert rest.mean() == pytest.approx(0.105, rel=0.02) and rest.std() == pytest.approx(0.015, rel=0.1)


def test_evaluation_is_no_time_in_which_batches_are_used() -> None:
    own = [step(evaluation=500 if n % 10 == 5 else 0) for n in range(60)]
    assert np.mean(feed(fed(rows(), own=own)).rest_s) == pytest.approx(0.09, rel=0.01)


def test_loaders_of_other_libraries_have_no_forecast() -> None:
    analysis = analyse(fed(rows(), {**TRAIN, "library": "dali"}))
    assert analysis.workers is None and analysis.forecast is None
    assert analysis.missing["loader.foreseen"]


def test_accumulated_batches_share_the_step() -> None:
    found = feed(fed(rows(), own=plan(30, micro_batches=2, samples=16)))
    assert found.batches == 2.0 and np.mean(found.rest_s) == pytest.approx(0.045)


def test_the_cores_that_training_keeps_busy_are_what_the_batches_do_not() -> None:
    samples = {("cpu.allowed_cores", "job"): series((0, 4.0)), ("job.cpu_s", "job"): steady_counter(2.4)}
    # 240 ms of CPU time in a step of 100 ms, 60 of them for its batch, in the 90 ms beside the wait
    assert feed(fed(rows(), samples=samples)).training_cores == pytest.approx(2.0, rel=0.01)
    assert feed(fed(rows())).training_cores == 1.0


def test_helper_threads_of_workers_compute_for_them_and_not_for_the_training() -> None:
    made = [{**row, "number": n // 2} for n, row in enumerate(rows(80, wait=0, delay=0, wall=60))]
    job = {("cpu.allowed_cores", "job"): series((0, 4.0)), ("job.cpu_s", "job"): steady_counter(2.4)}
    helped = {("proc.cpu_s", f"pid:{pid}"): steady_counter(0.6) for pid in (200, 201)}
    alone, beside = (feed(fed(made, own=plan(80), samples=samples)) for samples in (job, {**job, **helped}))
    # 60 ms of CPU time for a batch, of 120 that two workers take in the 100 ms of a step, of which 90 are beside the wait
    assert alone.threads == 1.0 and beside.threads == pytest.approx(2.0, rel=0.03)
    assert beside.training_cores == pytest.approx(alone.training_cores - 60 / 90, rel=0.05)


def crowded(dearer: float, count: int = 160) -> Recording:
    """A worker alone and two workers side by side, in turns of ten batches; side by side a batch takes more CPU time."""
    made, at = [], 0.0
    for n in range(count):
        both = n // 10 % 2 == 1
        cpu = 10 * (dearer if both else 1.0) * (1 + 0.02 * (n % 3))
        made.append({"start": at, "wall": cpu, "cpu": cpu, "worker": 0, "pid": 200})
        if both:
            made.append({"start": at, "wall": cpu, "cpu": cpu, "worker": 1, "pid": 201})
        at += cpu / 1000 + 0.001
    cores = {("cpu.allowed_cores", "job"): series((0, 2.0))}
    return fed(made, samples=cores)


def test_crowding_is_measured_where_batches_were_made_in_more_and_in_less_company() -> None:
    model = analyse(crowded(1.3)).workers
    assert model is not None and model.crowding_measured
    assert model.crowding[0] < 0.3 < model.crowding[1] and model.crowding[1] - model.crowding[0] < 0.1
    unhurt = analyse(crowded(1.0)).workers
    assert unhurt is not None and unhurt.crowding[0] == 0.0 < unhurt.crowding[1] < 0.1


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(fed(rows()), id="too few batches"),
        pytest.param(
            fed(
                [{**MADE, "start": 0.02 * n, "worker": 0} for n in range(140)],
                samples={("cpu.allowed_cores", "job"): series((0, 4.0))},
            ),
            id="always as many side by side",
        ),
    ],
)
def test_crowding_is_assumed_if_the_run_does_not_show_it(made: Recording) -> None:
    model = analyse(made).workers
    assert model is not None and model.crowding == CROWDING and not model.crowding_measured


def test_without_a_batch_there_is_no_forecast() -> None:
    analysis = analyse(recording({0: plan()}))
    assert analysis.workers is None and analysis.forecast is None
    assert "no batch was seen" in analysis.missing["loader.foreseen"]
    assert diagnose(recording({0: plan()})).worker_curve is None


def test_the_curve_goes_through_what_was_measured() -> None:
    curve = diagnose(fed(rows())).worker_curve
    assert curve is not None and curve.measured == 2
    measured = next(point for point in curve.points if point.workers == 2)
    assert measured.samples_per_s == pytest.approx((80.0, 80.0), rel=0.01)
    assert curve.points[0].workers == 0 and curve.points[-1].workers >= 4


def test_ranks_count_together() -> None:
    loaders = {100 + rank: {"loaders": [TRAIN]} for rank in (0, 1)}
    both = recording({0: plan(), 1: plan()}, batches={0: batches(rows()), 1: batches(rows())}, facts=loaders)
    curve = diagnose(both).worker_curve
    assert curve is not None and curve.points[2].samples_per_s[0] == pytest.approx(160.0, rel=0.01)


@pytest.mark.parametrize(("cores", "others"), [(64.0, 0.0), (16.0, 2.0)])
def test_only_neighbours_on_cores_that_the_job_could_have_are_in_the_forecasts_way(cores: float, others: float) -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 4.0)),
        ("cpu.cores", "host"): series((0, cores)),
        ("job.cpu_s", "job"): steady_counter(2.0),
        ("cpu.busy_s", "host"): steady_counter(16.0),
    }
    model = analyse(fed(rows(), samples=samples)).workers
    assert model is not None and model.other_cores == pytest.approx(others)


@pytest.mark.parametrize(
    ("kernel_ms", "comes_with_workers_ms"),
    [
        pytest.param(3, 3, id="all of it, as long as making takes as much"),
        pytest.param(40, 5.2, id="no more than in the making, and what handing over takes"),
    ],
)
def test_of_the_kernels_time_in_a_step_what_workers_bring_is_theirs(
    kernel_ms: float, comes_with_workers_ms: float
) -> None:
    own = plan(compute_system=kernel_ms, flags=FLAG_CLOCKED)
    assert feed(fed(rows(), own=own)).faults_s == pytest.approx(comes_with_workers_ms / 1000)
    twice = [{**row, "micro_batches": 2} for row in plan(compute_system=40, flags=FLAG_CLOCKED)]
    assert feed(fed(rows(), own=twice)).faults_s == pytest.approx(0.0104), "of each batch"
