"""Storage as the job used it: which mount, how fast, how even, what came from the page cache, what later epochs read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import (
    FIRST_STEP_NS,
    SECOND,
    batches,
    epoch_starts,
    plan,
    rank_process,
    recording,
    series,
    steady_counter,
)
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.recording import Event, Process, Series
from rn50_advisor.advisor.model.wording.told_facts import rows
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.verdict.diagnose import diagnose

Samples = dict[tuple[str, str], Series]
LONG = {0: plan(100)}  # ten seconds of steps of 100 ms
WORKER = rank_process(0, pid=200, role="worker", worker=0)
DISK = {
    "mount_point": "/data",
    "fs_type": "ext4",
    "device": "/dev/dm-0",
    "network": False,
    "disk": "dm-0",
    "below": ["sda"],
}
NFS = {"mount_point": "/data", "fs_type": "nfs4", "device": "server:/x", "network": True, "disk": None}


def mounted(*mounts: dict[str, Any]) -> tuple[Event, ...]:
    return tuple(Event(FIRST_STEP_NS, "data_mount", None, None, mount) for mount in mounts)


def job(
    samples: Samples, *mounts: dict[str, Any], plans: Any = None, workers: tuple[Process, ...] = (WORKER,)
) -> Analysis:
    seen = {("data.files", f"mount:{mount['mount_point']}"): series((0, 9)) for mount in mounts}
    made = recording(plans or LONG, samples={**seen, **samples}, events=mounted(*mounts))
    return analyse(replace(made, processes=(*made.processes, *workers)))


def disk(mb_s: float = 50, reads_s: float = 400, busy: float = 0.5, queue: float = 1.5, wait: float = 0.8) -> Samples:
    rates = {"read_bytes": mb_s * 1e6, "reads": reads_s, "busy_s": busy, "queue_s": queue, "read_wait_s": wait}
    rates["write_bytes"] = 0.0
    return {(f"disk.{name}", "disk:dm-0"): steady_counter(rate) for name, rate in rates.items()}


def io(asked_mb_s: float, read_mb_s: float, pid: int = 200) -> Samples:
    rates = {"rchar_bytes": asked_mb_s, "read_bytes": read_mb_s, "write_bytes": 0.0}
    return {(f"proc.{name}", f"pid:{pid}"): steady_counter(rate * 1e6) for name, rate in rates.items()}


def test_a_disk_is_told_by_its_rates_sizes_and_times() -> None:
    found = job(disk(), DISK)
    wanted = {"read_mb_s": 50, "reads_s": 400, "request_kb": 125, "busy_share": 0.5, "queue": 1.5, "read_s": 0.002}
    assert {name: found.get(f"storage.{name}") for name in wanted} == pytest.approx(wanted)
    assert found.storage == DataMount("/data", "ext4", "/dev/dm-0", False, "dm-0", ("sda",))
    assert found.storage.words == "/data (ext4 on dm-0 over sda)"
    told = rows(found.facts, "storage")
    assert ("lies on", "/data (ext4 on dm-0 over sda)") in told
    assert ("reads", "50 MB/s, 400 reads/s, 125 KB each, in 2.00 ms") in told


def test_reports_tell_what_the_data_lies_on() -> None:
    made = recording(LONG, samples={**disk(), ("data.files", "mount:/data"): series((0, 9))}, events=mounted(DISK))
    report = diagnose(made)
    for told in (text.render(report), markdown.render(report), html.render(report)):
        assert "/data (ext4 on dm-0 over sda)" in told and "400 reads/s" in told
    nothing = diagnose(recording(LONG))
    assert "## What the data lies on" not in markdown.render(nothing)


@pytest.mark.parametrize("facts", [{}, {"storage": None}, {"storage": [1]}, {"0": {}}])
def test_facts_of_another_shape_are_passed_over(facts: dict[str, Any]) -> None:
    assert rows(facts, "storage") == []


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


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ({}, "/proc/<pid>/io"),
        (io(1, 30), "mapped into memory"),
        (io(0.01, 0), "next to nothing"),
    ],
)
def test_a_share_that_cannot_be_told_says_why(samples: Samples, reason: str) -> None:
    found = job(samples, DISK)
    assert found.get("storage.cache_hit_share") is None
    assert reason in found.missing["storage.cache_hit_share"]
    assert (found.get("storage.sample_kb") is None) == (reason != "next to nothing")


def test_without_workers_the_rank_is_the_reader() -> None:
    found = job({**disk(), **io(80, 20, pid=100)}, DISK, workers=())
    assert found.get("storage.cache_hit_share") == pytest.approx(0.75)


def test_the_mount_with_the_most_files_is_the_datas() -> None:
    other = {**NFS, "mount_point": "/home"}
    samples = {("data.files", "mount:/home"): series((0, 1)), ("data.files", "mount:/data"): series((0, 900))}
    found = analyse(recording(LONG, samples=samples, events=mounted(other, DISK)))
    assert found.storage is not None and found.storage.mount_point == "/data"


def test_each_mount_that_data_lies_on_has_a_row() -> None:
    """Few files were seen open where libraries lie; rank 1's data set names a folder of its own."""
    other, home = {**NFS, "mount_point": "/val"}, {**DISK, "mount_point": "/", "disk": "vda"}
    files = {"/": 2, "/val": 40, "/data": 900}
    rates = {"mount.read_bytes": 50e6, "mount.reads": 400}
    samples = {
        **disk(),
        **{("data.files", f"mount:{point}"): series((0, count)) for point, count in files.items()},
        **{(metric, "mount:/val"): steady_counter(rate) for metric, rate in rates.items()},
    }
    loader = {"id": 0, "num_workers": 1, "training": True}
    named = {
        "loaders": [{**loader, "dataset": {"root": "/far/x"}}],
        "mounts": {"/far/x": {**NFS, "mount_point": "/far"}},
    }
    facts = {100: {"loaders": [loader]}, 101: named}
    made = recording({0: plan(100), 1: plan(100)}, samples=samples, events=mounted(home, other, DISK), facts=facts)
    found = analyse(made)
    assert found.storage is not None and found.storage.mount_point == "/data"
    told = rows(found.facts, "storage")
    assert told[:3] == [
        ("lies on", "/data (ext4 on dm-0 over sda)"),
        ("also on", "/val (nfs4 from server:/x), over a network, 50 MB/s, 400 reads/s"),
        ("also on (2)", "/far (nfs4 from server:/x), over a network"),
    ]
    assert ("reads", "50 MB/s, 400 reads/s, 125 KB each, in 2.00 ms") in told, "those of the first one"
    report = diagnose(made)
    for shown in (text.render(report), markdown.render(report), html.render(report)):
        assert "also on" in shown and "/val (nfs4 from server:/x)" in shown


def test_a_mount_is_told_once() -> None:
    loader = {"id": 0, "num_workers": 1, "training": True, "dataset": {"root": "/data/x"}}
    facts = {100: {"loaders": [loader, {**loader, "id": 1, "training": False}], "mounts": {"/data/x": DISK}}}
    samples = {("data.files", "mount:/data"): series((0, 900))}
    found = analyse(recording(LONG, samples=samples, events=mounted(DISK), facts=facts))
    assert [label for label, _ in rows(found.facts, "storage")] == ["lies on"]


def test_a_folder_that_the_data_set_names_stands_in_where_few_files_were_seen() -> None:
    loader = {"id": 0, "num_workers": 1, "training": True, "dataset": {"root": "/nfs/x"}}
    facts = {100: {"loaders": [loader], "mounts": {"/nfs/x": {**NFS, "mount_point": "/nfs"}}}}
    samples = {("data.files", "mount:/data"): series((0, 2))}
    found = analyse(recording(LONG, samples=samples, events=mounted(DISK), facts=facts))
    assert found.storage is not None and found.storage.mount_point == "/nfs"


@pytest.mark.parametrize(("read_mb_s", "mount"), [(50, "/data"), (45, "/data"), (20, None), (0, None)])
def test_the_disk_that_read_what_the_loaders_read_carries_the_data(read_mb_s: float, mount: str | None) -> None:
    """Nothing was seen open: each file was read in a moment."""
    other = {**DISK, "mount_point": "/", "disk": "vda"}
    samples = {**disk(), **io(60, read_mb_s), ("disk.read_bytes", "disk:vda"): steady_counter(1e6)}
    made = recording(LONG, samples=samples, events=mounted(other, DISK))
    found = analyse(replace(made, processes=(*made.processes, WORKER)))
    assert (found.storage and found.storage.mount_point) == mount


def test_an_unknown_mount_is_said_to_be_unknown() -> None:
    found = analyse(recording(LONG))
    assert found.storage is None and "storage" not in found.facts
    assert "no data file was seen open" in found.missing["storage.read_mb_s"]


def test_an_nfs_mount_is_told_by_its_own_counters() -> None:
    rates = {"read_bytes": 30e6, "asked_bytes": 40e6, "reads": 100, "read_wait_s": 2.0}
    samples = {(f"mount.{name}", "mount:/data"): steady_counter(rate) for name, rate in rates.items()}
    found = job(samples, NFS)
    wanted = {"read_mb_s": 30, "reads_s": 100, "request_kb": 300, "read_s": 0.02, "queue": 2, "cache_hit_share": 0.25}
    assert {name: found.get(f"storage.{name}") for name in wanted} == pytest.approx(wanted)
    assert found.get("storage.busy_share") is None


def test_another_network_file_system_says_that_it_does_not_count() -> None:
    found = job(io(40, 0), {**NFS, "fs_type": "lustre"})
    assert "lustre keeps no counters" in found.missing["storage.read_mb_s"]
    assert found.get("storage.asked_mb_s") == pytest.approx(40)


@pytest.mark.parametrize(("again", "share"), [(0.0, 0.0), (20.0, 0.5), (40.0, 1.0)])
def test_what_later_epochs_read_again(again: float, share: float) -> None:
    """The first four seconds are the first epoch, of 160 MB; the rest is one and a half epochs more."""
    plans = {0: epoch_starts(plan(100), 40)}
    read = np.array([40e6 * min(t, 4) + again * 1e6 * max(0, t - 4) for t in range(11)])
    times = np.arange(11) * SECOND + FIRST_STEP_NS
    samples = {**io(40, 0), ("proc.read_bytes", "pid:200"): Series(times, read)}
    found = job({**disk(), **samples}, DISK, plans=plans)
    assert found.get("storage.epoch_mb") == pytest.approx(160)
    assert found.get("storage.later_epochs") == pytest.approx(1.5)
    assert found.get("storage.reread_share") == pytest.approx(share)
    first, second, third = (found.values["storage.cache_hit_share", f"epoch:{number}"] for number in range(3))
    assert (first, second, third) == pytest.approx((0.0, 1 - again / 40, 1 - again / 40), abs=0.01)
    assert found.get("storage.later_read_share") == pytest.approx(again * 6 / (again * 6 + 40 * 3.7), abs=0.02)


def test_within_the_first_epoch_nothing_is_read_again() -> None:
    found = job({**disk(), **io(40, 40)}, DISK, plans={0: epoch_starts(plan(100), 200)})
    assert found.get("storage.reread_share") is None and "epoch" in found.missing["storage.reread_share"]


def test_room_for_files_is_what_is_free_and_what_holds_files_now() -> None:
    group = {"limit": 900e6, "used": 800e6, "cache": 300e6}
    samples = {(f"cgroup.mem_{name}_bytes", "pid:100"): series((0, value)) for name, value in group.items()}
    found = job({**samples, ("mem.available_bytes", "host"): series((0, 16e9))}, DISK)
    assert found.get("storage.group_room_mb") == pytest.approx(400)
    assert found.get("storage.host_room_mb") == pytest.approx(16_000)


def test_limits_and_what_the_provider_held_back_belong_to_the_datas_disk() -> None:
    samples = {
        ("disk.limit_read_bytes_s", "disk:dm-0"): series((0, 25e6)),
        ("disk.limit_reads_s", "disk:sdb"): series((0, 10)),
        ("disk.volume_exceeded_s", "disk:dm-0"): steady_counter(0.3),
    }
    found = job({**disk(), **samples}, DISK)
    assert found.get("storage.limit_mb_s") == 25.0 and found.get("storage.limit_reads_s") is None
    assert found.get("storage.volume_exceeded_share") == pytest.approx(0.3)


def test_the_median_second_is_not_that_of_the_ends() -> None:
    times = np.arange(11) * SECOND + FIRST_STEP_NS
    found = job({**disk(), ("disk.read_bytes", "disk:dm-0"): Series(times, np.cumsum([0, 9e6, *[40e6] * 8, 0]))}, DISK)
    assert found.get("storage.usual_mb_s") == pytest.approx(40)
    assert found.get("storage.mb_spread") == pytest.approx(0)


def test_an_even_rate_has_no_spread_and_a_ragged_one_has() -> None:
    ragged = np.cumsum([0, 0, *[30e6, 50e6, 70e6] * 3])
    times = np.arange(11) * SECOND + FIRST_STEP_NS
    found = job({**disk(), ("disk.read_bytes", "disk:dm-0"): Series(times, ragged)}, DISK)
    assert found.get("storage.mb_spread") == pytest.approx(20 / 50)
    assert found.get("storage.reads_spread") == pytest.approx(0.0)


def test_time_that_loaders_are_blocked_and_the_disk_does_not_work_is_seen() -> None:
    """A batch of 100 ms a step is blocked for 90 ms, 0.9 s a second, of which the disk takes 0.45."""
    made = [{"start": n / 10, "wall": 100, "cpu": 10, "pid": 200 + n % 2, "worker": n % 2} for n in range(1, 99)]
    samples = {**disk(wait=0.45), ("data.files", "mount:/data"): series((0, 9))}
    samples["psi.io_some_s", "host"] = steady_counter(0.7)
    known = recording(LONG, samples=samples, events=mounted(DISK), batches={0: batches(made)})
    found = analyse(known)
    assert found.get("storage.blocked") == pytest.approx(0.9, rel=0.05)
    assert found.get("storage.device_share") == pytest.approx(0.45 / 0.9, rel=0.05)
    assert found.get("storage.io_wait_share") == pytest.approx(0.7)
