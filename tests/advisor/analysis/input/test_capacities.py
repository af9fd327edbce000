"""What each stage could deliver alone: from what it did while it was busy, with an interval, or with the reason why it is not known."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import epoch_starts, gpu_steps, plan, recording, series, steady_counter, step
from rn50_advisor.advisor.analysis.input.loading import Loading
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.storage.reading_limit import storage_ceiling
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
    assert found.samples_per_s == pytest.approx(2 * 8 / 0.070) and "waiting that is no reading" in found.basis


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
    assert "parallel efficiency 0.7–1.0, not measured" in idle.basis and "all of them at work" in busy.basis


def test_in_the_training_process_there_is_one_lane_and_nothing_is_handed_over() -> None:
    own = plan(30, input_wait=60, **CLOCKED)
    made = recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": 0}]}})
    assert value(made, "preprocessing") == pytest.approx(8 / 0.030)
    assert "training process" in capacity(made, "preprocessing").basis
    assert "nothing is handed over" in capacity(made, "loader").basis


def test_handing_over_is_what_comes_after_a_batch_is_made() -> None:
    # each batch is made 6 ms into its fetch of 10 ms
    own = epoch_starts(plan(60), 1000)
    rows = [
        {**FEED, "start": 0.1 * n - 0.074, "worker": n % 2, "number": n // 2, "pid": 200 + n % 2, "loader": 0}
        for n in range(60)
    ]
    found = capacity(fed(rows, own=own), "loader")
    assert found.samples_per_s == pytest.approx(8 / 0.004, rel=0.01)
    assert found.basis.startswith("4 ms from a batch's making")


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
    made = recording({0: plan(60)}, gpu_steps={0: gpu_steps([on_gpu] * 60)}, facts={100: {"cuda": "12.4"}})
    assert value(made, "compute") == pytest.approx(8 / 0.065)
    assert "not looked for" in capacity(made, "copy").basis


MADE = Loading(2, 100, 8.0, wall_s=0.08, cpu_s=0.01, delay_s=0.0, read_bytes=80_000, system_s=0.0, busy_share=1.0)


READ = {"storage.read_mb_s": 1.0, "storage.reads_s": 50.0}  # a hundred samples and fifty requests a second
BUSY = {"storage.busy_share": 0.95, "storage.queue": 3.0}


@pytest.mark.parametrize(
    ("probe", "ceiling"),
    [
        pytest.param({}, None, id="nothing known of the disk"),
        pytest.param({"storage.limit_mb_s": 1.1}, (110.0, True), id="a control group's limit"),
        pytest.param({"storage.limit_mb_s": 2.0}, (200.0, False), id="a limit that is far"),
        pytest.param({"storage.limit_reads_s": 55.0}, (110.0, True), id="a limit on requests"),
        pytest.param({"storage.limit_reads_s": 75.0, "storage.limit_mb_s": 2.0}, (150.0, False), id="the lower of two"),
        pytest.param(BUSY, (100.0, True), id="a disk that is busy"),
        pytest.param({**BUSY, "storage.limit_mb_s": 2.0}, (100.0, True), id="a disk that gives less than is allowed"),
        pytest.param({"storage.busy_share": 0.95, "storage.queue": 1.0}, None, id="one request at a time"),
        pytest.param({"storage.volume_exceeded_share": 0.5}, (100.0, True), id="a volume that its provider holds back"),
    ],
)
def test_the_most_that_storage_gives(probe: dict[str, float], ceiling: tuple[float, bool] | None) -> None:
    for hosts in (1, 2):
        found = storage_ceiling({**READ, **probe}.get, MADE, hosts)
        told = None if found is None else (found.samples_per_s, found.reached)
        assert told == (None if ceiling is None else (pytest.approx(hosts * ceiling[0]), ceiling[1]))
    assert storage_ceiling(probe.get, MADE) is None, "how much is read must be known"


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
    known = {(name, "job"): value for name, value in {**READ, **limit}.items()}
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
        (fed(evenly(cpu=1, delay=0)), "preprocessing", "next to no CPU time"),
        (fed(evenly()), "loader", "no epoch began"),
    ],
)
def test_a_capacity_that_cannot_be_told_says_why(made: Recording, stage: str, why: str) -> None:
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
