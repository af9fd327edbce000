"""The capacity of each stage alone, with an interval, or the reason why it is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import batches, epoch_starts, gpu_steps, plan, recording, series, steady_counter, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Capacity
from rn50_advisor.advisor.model.statistics import relative_error
from stage_capacities import FEED, TRAIN, capacity, evenly, fed, value

CLOCKED = {"fetches": 1, "fetch": 50, "fetch_cpu": 30, "fetch_delay": 5, "fetch_blocks": 100}


def width(found: Capacity) -> float:
    assert found.samples_per_s and found.lo is not None and found.hi is not None
    assert found.lo <= found.samples_per_s <= found.hi
    return (found.hi - found.lo) / found.samples_per_s


def test_each_stage_has_the_capacity_it_showed_while_busy() -> None:
    made = fed(evenly())
    assert value(made, "preprocessing") == pytest.approx(2 * 8 / 0.060)
    assert value(made, "storage") == pytest.approx(2 * 8 / 0.010)
    assert value(made, "compute") == pytest.approx(8 / 0.09)


def test_stages_are_always_the_same_six_in_the_way_of_the_data() -> None:
    stages = ["storage", "preprocessing", "loader", "copy", "compute", "communication"]
    for made in (recording({0: plan()}), fed(evenly())):
        assert [c.stage for c in analyse(made).capacities] == stages


def test_preprocessing_has_no_more_lanes_than_cores() -> None:
    cores = {("cpu.allowed_cores", "job"): series((0, 1.0))}
    assert value(fed(evenly(), samples=cores), "preprocessing") == pytest.approx(8 / 0.060)


def test_waiting_that_is_no_reading_belongs_to_preprocessing() -> None:
    found = capacity(fed(evenly(blocks=0)), "preprocessing")
    assert found.samples_per_s == pytest.approx(2 * 8 / 0.070) and "waiting other than reading" in found.basis


def test_intervals_follow_the_batches_spread() -> None:
    alike, apart = (
        evenly(),
        [{**row, "cpu": 30 + 60 * (n % 2), "wall": 50 + 60 * (n % 2)} for n, row in enumerate(evenly())],
    )
    ragged = [{**row, "cpu": 20 + 80 * (n // 3 % 2), "wall": 110} for n, row in enumerate(evenly())]
    narrow, wide = (width(capacity(fed(rows), "preprocessing")) for rows in (alike, ragged))
    assert narrow < 0.02 and wide > 0.2
    assert value(fed(apart), "preprocessing") == pytest.approx(2 * 8 / 0.060, rel=0.03)


def test_lanes_that_idle_may_make_less_once_all_work() -> None:
    cpus = {("cpu.allowed_cores", "job"): series((0, 4.0)), ("job.cpu_s", "job"): steady_counter(2.0)}
    idle, busy = (capacity(fed(evenly(wait=w), samples=cpus), "preprocessing") for w in (400, 0))
    assert idle.lo is not None and busy.lo is not None and idle.lo < 0.9 * busy.lo
    assert "parallel efficiency 0.7–1.0, not measured" in idle.basis and "all of them busy" in busy.basis


def test_in_the_training_process_there_is_one_lane_and_nothing_is_handed_over() -> None:
    own = plan(30, input_wait=60, **CLOCKED)
    made = recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": 0}]}})
    assert value(made, "preprocessing") == pytest.approx(8 / 0.030)
    assert "training process" in capacity(made, "preprocessing").basis
    assert "nothing is transferred from workers" in capacity(made, "loader").basis


def test_handing_over_is_what_comes_after_a_batch_is_made() -> None:
    # each batch is made 6 ms into its fetch of 10 ms
    own = epoch_starts(plan(60), 1000)
    rows = [
        {**FEED, "start": 0.1 * n - 0.074, "worker": n % 2, "number": n // 2, "pid": 200 + n % 2, "loader": 0}
        for n in range(60)
    ]
    found = capacity(fed(rows, own=own), "loader")
    assert found.samples_per_s == pytest.approx(8 / 0.004, rel=0.01)
    assert found.basis.startswith("4 ms from finished batch")


def test_compute_is_measured_from_steps_whose_input_was_ready() -> None:
    own = [step(input_wait=2, forward=30) if n % 2 else step(input_wait=50, forward=60) for n in range(80)]
    found = capacity(recording({0: own}), "compute")
    assert found.samples_per_s == pytest.approx(8 / 0.090) and "39 steps whose input was ready" in found.basis


def test_compute_without_enough_ready_steps_says_so_and_may_be_more() -> None:
    found = capacity(recording({0: plan(60, input_wait=50)}), "compute")
    assert "only 0 of 57 steps had their input ready" in found.basis
    assert found.hi == pytest.approx(1.15 * 8 / 0.090) and found.lo == pytest.approx(8 / 0.090)


def test_compute_is_as_fast_as_its_slowest_rank() -> None:
    made = recording({0: plan(), 1: plan(30, forward=120)}, wire_ms=5)
    assert value(made, "compute") == pytest.approx(2 * 8 / 0.18)
    assert value(made, "communication") == pytest.approx(2 * 8 / 0.005)
    assert "30 steps that DDP stamped" not in capacity(made, "communication").basis  # the warm-up is left out
    assert width(capacity(made, "communication")) < 0.01


def test_compute_is_the_streams_time_where_events_were_read() -> None:
    on_gpu = {"input_wait": 0.0, "forward": 20.0, "backward": 40.0, "optimizer": 5.0, "gap": 35.0}
    made = recording({0: plan(60)}, gpu_steps={0: gpu_steps([on_gpu] * 60)}, facts={100: {"cuda": {"device": 0}}})
    assert value(made, "compute") == pytest.approx(8 / 0.065)
    assert "not searched for" in capacity(made, "copy").basis


READ = {"storage.read_mb_s": 1.0, "storage.reads_s": 50.0}  # a hundred samples and fifty requests a second


def of_job(values: dict[str, float]) -> Measured:
    return Measured({(name, "job"): value for name, value in values.items()})


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        # three lanes of 10 ms a batch: 2400/s; one of them 800/s, and 80/s were seen. 12.8 KB a sample, 1 MB/s read
        pytest.param({}, (800 * 0.9, 2400.0, 2400 * 1.1), id="no limit: one lane is certain"),
        pytest.param({"storage.limit_mb_s": 100.0}, (800 * 0.9, 2400.0, 2400 * 1.1), id="a limit beyond the lanes"),
        pytest.param({"storage.limit_mb_s": 12.8}, (800.0, 1000.0, 1000.0), id="below the lanes"),
        pytest.param({"storage.limit_mb_s": 2.56}, (200.0, 200.0, 200.0), id="below one of them"),
        pytest.param({"storage.limit_reads_s": 100.0}, (156.25, 156.25, 156.25), id="requests"),
        pytest.param({"storage.limit_mb_s": 1.1}, (1.1e6 / 12_800,) * 3, id="reached"),
    ],
)
def test_storage_gives_no_more_than_it_may_and_no_less_than_one_reader_had(
    limit: dict[str, float], expected: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = of_job({**READ, **limit})
    monkeypatch.setattr("rn50_advisor.advisor.analysis.measures.storage_values", lambda *args: known)
    rows = [{**row, "worker": n % 3, "pid": 200 + n % 3} for n, row in enumerate(evenly())]
    found = capacity(fed(rows, {**TRAIN, "num_workers": 3}), "storage")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx(expected, rel=0.001)
    assert ("a control group allows" in found.basis) == (expected[1] < 2400)


def test_the_job_as_a_whole_was_seen_to_read_more_than_one_lane() -> None:
    """Batches of 100 ms, all of it reading, by ten workers: a hundred a second came."""
    rows = evenly(280, wall=100, cpu=0, delay=0, wait=0)
    rows = [{**row, "start": 0.01 * n, "worker": n % 10, "pid": 200 + n % 10} for n, row in enumerate(rows)]
    own = plan(280, forward=1, backward=6, optimizer=1, input_wait=1, gap=1)
    found = capacity(fed(rows, {**TRAIN, "num_workers": 10}, own=own), "storage")
    assert found.samples_per_s == pytest.approx(800) and found.lo == pytest.approx(0.9 * 800, rel=0.01)


@pytest.mark.parametrize(
    ("made", "stage", "why"),
    [
        (recording({0: plan()}), "loader", "no batch was seen"),
        (recording({0: plan()}), "storage", "no batch was seen"),
        (recording({0: plan()}), "copy", "no CUDA device"),
        (recording({0: plan()}), "communication", "one rank"),
        (recording({0: plan(), 1: plan()}, ddp=False), "communication", "not measured"),
        (recording({0: plan(), 1: plan()}), "communication", "hidden behind the backward pass"),
        (fed(evenly(blocks=0)), "storage", "page cache"),
        (fed(evenly(cpu=1, delay=0)), "preprocessing", "almost no CPU time"),
        (fed(evenly()), "loader", "no epoch began"),
    ],
)
def test_an_unknown_capacity_has_a_reason(made: Recording, stage: str, why: str) -> None:
    found = capacity(made, stage)
    assert found.samples_per_s is None and why in found.basis


def test_without_samples_there_are_no_capacities() -> None:
    assert analyse(recording({0: plan(30, samples=0)})).capacities == ()


def test_the_relative_error_is_that_of_stretches() -> None:
    independent = np.random.default_rng(0).normal(1.0, 0.1, 1600)
    assert relative_error(independent) == pytest.approx(2 * 0.1 / 40, rel=0.4)
    slow_wave = np.repeat(np.random.default_rng(0).normal(1.0, 0.1, 16), 100)
    assert relative_error(slow_wave) > 5 * relative_error(independent), "a hundred that are alike are one"
    assert relative_error(np.array([3.0])) == 1.0 and relative_error(np.zeros(5)) == 1.0


def test_what_cores_can_make_counts_all_threads_of_a_worker() -> None:
    """Each worker's own thread computes for 0.3 s a second, its process for 0.6."""
    rows = [{**row, "number": n // 2} for n, row in enumerate(evenly(40))]
    alone = {("cpu.allowed_cores", "job"): series((0, 1.0))}
    helped = {("proc.cpu_s", f"pid:{pid}"): steady_counter(0.6) for pid in (200, 201)}
    one, all_threads = (capacity(fed(rows, samples=more), "preprocessing") for more in (alone, {**alone, **helped}))
    assert one.samples_per_s == pytest.approx(8 / 0.060)
    assert all_threads.samples_per_s == pytest.approx(8 / 0.120, rel=0.02)
    assert "133 per second and core" in one.basis and "66.7 per second and core" in all_threads.basis


def test_without_a_clock_of_the_run_queue_blocked_time_is_nobodys() -> None:
    """A clock that the kernel does not keep reads 0."""
    facts = {"run_delay": False}
    made = fed(evenly(delay=0), facts=facts)
    assert value(made, "storage") is None and "schedstat" in capacity(made, "storage").basis
    assert value(made, "preprocessing") == pytest.approx(2 * 8 / 0.060), "computing is known"
    # nothing was read: the 20 ms may be a line at the cores, or sleep
    found = capacity(fed(evenly(delay=0, blocks=0), facts=facts), "preprocessing")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx((200, 200, 2 * 8 / 0.060))
    assert "all waiting" in found.basis and "schedstat" in found.basis


def test_parallel_efficiency_is_reported_if_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rn50_advisor.advisor.analysis.input.worker_forecast.measured_crowding", lambda *args: (0.25, 1 / 3)
    )
    cpus = {("cpu.allowed_cores", "job"): series((0, 4.0)), ("job.cpu_s", "job"): steady_counter(2.0)}
    idle, busy = (capacity(fed(evenly(wait=w), samples=cpus), "preprocessing") for w in (400, 0))
    assert idle.basis.endswith("parallel efficiency 0.75–0.80 as measured")
    assert busy.basis.endswith("all of them busy, at a parallel efficiency of 0.75–0.80 as measured")


def test_batches_that_are_handed_over_at_once_are_not_lost_from_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    def preprocessing(*handed: float) -> Capacity:
        known = {("fetch.hand_over_s", rank): seconds for rank, seconds in enumerate(handed)}
        monkeypatch.setattr(
            "rn50_advisor.advisor.analysis.measures.delivery_values", lambda *args, **kwargs: Measured(known)
        )
        ranks = range(len(handed))
        facts = {100 + rank: {"loaders": [TRAIN]} for rank in ranks}
        made = recording(dict.fromkeys(ranks, plan()), batches=dict.fromkeys(ranks, batches(evenly())), facts=facts)
        return capacity(made, "loader")

    assert preprocessing(0.0).samples_per_s is None and "no time was measured" in preprocessing(0.0).basis
    assert preprocessing(0.0, 0.004).samples_per_s == pytest.approx(2 * 8 / 0.004)
