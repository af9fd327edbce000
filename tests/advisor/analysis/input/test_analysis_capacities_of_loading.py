"""What reading, preparing and handing over could deliver where the kernel, the mount or threads of their own hide a part of it."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import FIRST_STEP_NS, batches, plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.storage.data_mount import network_values
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.model.report import Capacity
from stage_capacities import TRAIN, capacity, evenly, fed, value

NFS = {"mount_point": "/data", "fs_type": "nfs4", "device": "server:/x", "network": True, "disk": None}
SEEN_OPEN: dict[str, Any] = {
    "events": (Event(FIRST_STEP_NS, "data_mount", None, None, NFS),),
    "samples": {("data.files", "mount:/data"): series((0, 9))},
}


def test_a_data_set_that_names_no_folder_is_read_from_where_its_files_were_seen_open() -> None:
    """Reads through NFS show no blocks."""
    made = fed(evenly(blocks=0), **SEEN_OPEN)
    assert value(made, "storage") == pytest.approx(2 * 8 / 0.010)
    assert value(made, "preprocessing") == pytest.approx(2 * 8 / 0.060)
    workers = analyse(made).workers
    assert workers is not None and workers.feeds[0].reading_s == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("network", "known", "told"),
    [
        pytest.param(True, {}, 1.0, id="over the network"),
        pytest.param(False, {}, 0.0, id="local"),
        pytest.param(None, {}, None, id="cannot be told"),
        pytest.param(True, {("data.network_mount", "rank:0"): 0.0}, None, id="the data set names its folder"),
        pytest.param(True, {("storage.sample_kb", "job"): 0.6}, 1.0, id="a block a sample is asked for"),
        pytest.param(True, {("storage.sample_kb", "job"): 0.1}, None, id="files in memory"),
    ],
)
def test_the_mount_of_open_files_stands_in_for_a_folder(
    network: bool | None, known: dict[tuple[str, str], float], told: float | None
) -> None:
    mounts = (DataMount("/data", "nfs4", "server:/x", network, None),)
    found = network_values(mounts, {("fetch.wall_s", "rank:0"): 0.1, **known})
    assert found == ({} if told is None else {("data.network_mount", "rank:0"): told})
    assert network_values((), {("fetch.wall_s", "rank:0"): 0.1}) == {}


def test_what_cores_can_make_counts_all_threads_of_a_worker() -> None:
    """Each worker's own thread computes for 0.3 s a second, its process for 0.6."""
    rows = [{**row, "number": n // 2} for n, row in enumerate(evenly(40))]
    alone = {("cpu.allowed_cores", "job"): series((0, 1.0))}
    helped = {("proc.cpu_s", f"pid:{pid}"): steady_counter(0.6) for pid in (200, 201)}
    one, all_threads = (capacity(fed(rows, samples=more), "preprocessing") for more in (alone, {**alone, **helped}))
    assert one.samples_per_s == pytest.approx(8 / 0.060)
    assert all_threads.samples_per_s == pytest.approx(8 / 0.120, rel=0.02)
    assert "133 a second and core" in one.basis and "66.7 a second and core" in all_threads.basis


def test_without_a_clock_of_the_run_queue_blocked_time_is_nobodys() -> None:
    """What no kernel counted reads 0."""
    facts = {"run_delay": False}
    made = fed(evenly(delay=0), facts=facts)
    assert value(made, "storage") is None and "schedstat" in capacity(made, "storage").basis
    assert value(made, "preprocessing") == pytest.approx(2 * 8 / 0.060), "computing is known"
    # nothing was read: the 20 ms may be a line at the cores, or sleep
    found = capacity(fed(evenly(delay=0, blocks=0), facts=facts), "preprocessing")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx((200, 200, 2 * 8 / 0.060))
    assert "all waiting" in found.basis and "schedstat" in found.basis


def test_parallel_efficiency_is_told_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rn50_advisor.advisor.analysis.input.worker_forecast.measured_crowding", lambda *args: (0.25, 1 / 3)
    )
    cpus = {("cpu.allowed_cores", "job"): series((0, 4.0)), ("job.cpu_s", "job"): steady_counter(2.0)}
    idle, busy = (capacity(fed(evenly(wait=w), samples=cpus), "preprocessing") for w in (400, 0))
    assert idle.basis.endswith("parallel efficiency 0.75–0.80 as measured")
    assert busy.basis.endswith("with all of them at work, at a parallel efficiency of 0.75–0.80 as measured")


def test_batches_that_are_handed_over_at_once_are_not_lost_from_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(*handed: float) -> Capacity:
        known = {("fetch.hand_over_s", f"rank:{rank}"): seconds for rank, seconds in enumerate(handed)}
        monkeypatch.setattr("rn50_advisor.advisor.analysis.measures.delivery_values", lambda *args, **kwargs: known)
        ranks = range(len(handed))
        facts = {100 + rank: {"loaders": [TRAIN]} for rank in ranks}
        made = recording(dict.fromkeys(ranks, plan()), batches=dict.fromkeys(ranks, batches(evenly())), facts=facts)
        return capacity(made, "loader")

    assert told(0.0).samples_per_s is None and "as soon as it is made" in told(0.0).basis
    assert told(0.0, 0.004).samples_per_s == pytest.approx(2 * 8 / 0.004)
