"""Storage as the job used it: what came from the page cache, what later epochs read again, and the room for files."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import (
    FIRST_STEP_NS,
    SECOND,
    batches,
    epoch_starts,
    plan,
    recording,
    series,
    steady_counter,
)
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Series
from rn50_advisor.advisor.report import html, markdown, text
from rn50_advisor.advisor.verdict.diagnose import diagnose
from storage_recordings import DISK, LONG, NFS, Samples, disk, io, job, mounted


def test_reports_show_the_storage_of_the_data() -> None:
    made = recording(LONG, samples={**disk(), ("data.files", "mount:/data"): series((0, 9))}, events=mounted(DISK))
    report = diagnose(made)
    for rendered in (text.render(report), markdown.render(report), html.render(report)):
        assert "/data (ext4 on dm-0 over sda)" in rendered and "400 reads/s" in rendered
    nothing = diagnose(recording(LONG))
    assert "## Storage" not in markdown.render(nothing)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ({}, "/proc/<pid>/io"),
        (io(1, 30), "mapped into memory"),
        (io(0.01, 0), "almost nothing"),
    ],
)
def test_an_unknown_share_has_a_reason(samples: Samples, reason: str) -> None:
    found = job(samples, DISK)
    assert found.get("storage.cache_hit_share") is None
    assert reason in found.missing["storage.cache_hit_share"]
    assert (found.get("storage.sample_kb") is None) == (reason != "almost nothing")


def test_an_nfs_mount_is_measured_by_its_own_counters() -> None:
    rates = {"read_bytes": 30e6, "asked_bytes": 40e6, "reads": 100, "read_wait_s": 2.0}
    samples = {(f"mount.{name}", "mount:/data"): steady_counter(rate) for name, rate in rates.items()}
    found = job(samples, NFS)
    wanted = {"read_mb_s": 30, "reads_s": 100, "request_kb": 300, "read_s": 0.02, "queue": 2, "cache_hit_share": 0.25}
    assert {name: found.get(f"storage.{name}") for name in wanted} == pytest.approx(wanted)
    assert found.get("storage.busy_share") is None


def test_another_network_file_system_says_that_it_does_not_count() -> None:
    found = job(io(40, 0), {**NFS, "fs_type": "lustre"})
    assert "lustre has no counters" in found.missing["storage.read_mb_s"]
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
    first, second, third = (found.values["storage.cache_hit_share", number] for number in range(3))
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
