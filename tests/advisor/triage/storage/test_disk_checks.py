"""Reading as a training does, on small files; limits, remedies and the disturbance by others from made-up trees."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from disk_files import files, place
from probe_trees import V2_MOUNTS, write_tree
from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.host.other_load import LoadInterval, Moment, Watch
from rn50_advisor.advisor.triage.storage import disk_checks
from rn50_advisor.advisor.triage.storage.disk_checks import Amounts, DiskTrial
from rn50_advisor.advisor.triage.storage.folder_place import Place, place_of
from rn50_advisor.advisor.triage.storage.timed_io import (
    Pass,
    list_files,
)

TINY = Amounts(2 << 20, 8, 1.0, 4 << 20)


@pytest.mark.parametrize(("mb_per_s", "state"), [(20, "bad"), (93, "bad"), (94, "ok"), (500, "ok")])
def test_a_limit_that_a_control_group_sets_is_read(tmp_path: Path, mb_per_s: int, state: str) -> None:
    root = write_tree(
        tmp_path,
        {
            "proc/self/mountinfo": f"{V2_MOUNTS}27 1 7:0 / / rw - ext4 /dev/loop0 rw\n",
            f"proc/{os.getpid()}/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/io.max": f"7:0 rbps={mb_per_s}000000 wbps=max riops=max wiops=max\n",
            "sys/devices/loop0/size": "1000",
            "data/x": "",
        },
    )
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/7:0").symlink_to("../../devices/loop0")
    (root / "sys/class/block").mkdir(parents=True)
    (root / "sys/class/block/loop0").symlink_to("../../devices/loop0")
    found = list(disk_checks._limit(place_of(Path("/data"), root)))
    assert [one.check.state for one in found if isinstance(one, Found)] == [state]
    assert found[0].remedy == "fix"  # type: ignore[union-attr]


def moment(at_s: float, disk_bytes: dict[str, float]) -> Moment:
    return Moment(at_s, 0.0, None, None, None, None, {}, disk_bytes)


class Played(Watch):
    """Hands out the moments it was given."""

    def __init__(self, *moments: Moment) -> None:
        super().__init__()
        self._moments = iter(moments)

    def now(self) -> Moment:
        return next(self._moments)


@pytest.mark.parametrize(
    ("idle_bytes", "moved", "busy"),
    [(0.0, 100e6, False), (0.0, 124e6, False), (0.0, 126e6, True), (60e6, 100e6, True), (0.0, 60e6, False)],
)
def test_others_on_the_disk_make_a_low_number_unknown(
    tmp_path: Path, idle_bytes: float, moved: float, busy: bool
) -> None:
    idle = LoadInterval(moment(0.0, {"nvme0n1": 0.0}), moment(10.0, {"nvme0n1": idle_bytes}))
    watch = Played(moment(10.0, {"nvme0n1": 1e9}), moment(13.0, {"nvme0n1": 1e9 + moved}))
    one = Pass(100_000_000, 3.0, 1, "around")
    _, others = disk_checks._timed(DiskTrial(place(tmp_path), TINY, watch, idle), lambda: one)
    assert bool(others) == busy
    slow = judged("x", 33.0, "MB/s", Band(100.0, None), remedy="hand-back", hint="slow", why="slow")
    found = disk_checks._proved(slow, one, others, place(tmp_path))
    assert found.check.state == ("unknown" if busy else "bad")


@pytest.mark.parametrize(("stopped", "state"), [(1.0, "bad"), (30.0, "unknown")])
def test_a_quota_that_stopped_us_makes_a_low_number_unknown(tmp_path: Path, stopped: float, state: str) -> None:
    idle = LoadInterval(moment(0.0, {}), moment(10.0, {}))
    first = replace(moment(10.0, {}), periods=0.0, throttled_periods=0.0)
    watch = Played(first, replace(moment(13.0, {}), periods=30.0, throttled_periods=stopped))
    one = Pass(100_000_000, 3.0, 1, "around")
    where = place(tmp_path)
    _, why = disk_checks._timed(DiskTrial(where, TINY, watch, idle), lambda: one)
    slow = judged("x", 33.0, "MB/s", Band(100.0, None), remedy="hand-back", hint="slow", why="slow")
    assert disk_checks._proved(slow, one, why, where).check.state == state


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (Pass(1, 1.0, 1, "around"), "ok"),
        (Pass(1, 1.0, 1, "dropped", 0.05), "ok"),
        (Pass(1, 1.0, 1, "dropped", 0.5), "unknown"),
        (Pass(1, 1.0, 1, "dropped", None), "unknown"),
    ],
)
def test_what_came_out_of_the_page_cache_says_nothing_good_of_the_disk(tmp_path: Path, one: Pass, state: str) -> None:
    fast = judged("x", 5000.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk_checks._proved(fast, one, "", place(tmp_path)).check.state == state
    slow = judged("x", 3.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk_checks._proved(slow, one, "", place(tmp_path)).check.state == "bad"


@pytest.mark.parametrize(
    ("fs_type", "state"), [("ext4", "ok"), ("nfs4", "ok"), ("zfs", "unknown"), ("fuse.gcsfuse", "unknown")]
)
def test_nor_does_what_came_out_of_a_cache_of_the_file_system(tmp_path: Path, fs_type: str, state: str) -> None:
    around, where = Pass(1, 1.0, 1, "around"), place(tmp_path, fs_type=fs_type)
    fast = judged("x", 5000.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk_checks._proved(fast, around, "", where).check.state == state
    slow = judged("x", 3.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk_checks._proved(slow, around, "", where).check.state == "bad"


def test_data_is_read_and_never_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "QUICK", TINY)
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    scratch.mkdir()
    files(data, 20, 50_000)
    before = {path: path.stat().st_mtime_ns for path in data.iterdir()}
    watch = Watch()
    now = watch.now()
    items = list(
        disk_checks.disks(
            TriageOptions(scratch, "python", data, listing=list_files(data)), watch, LoadInterval(now, now)
        )
    )
    names = {item.check.name for item in items if isinstance(item, Found)}
    assert {path: path.stat().st_mtime_ns for path in data.iterdir()} == before
    if "disk.sync_ms" in names:  # where temporary files do not lie in memory
        assert {"disk.small_reads_per_s", "disk.small_reads_warm_per_s", "disk.write_mb_per_s"} <= names
        small = next(item for item in items if isinstance(item, Found) and item.check.name == "disk.small_reads_per_s")
        assert small.check.expected.lo == pytest.approx(0.75 * 125e6 / 50_000)


def test_data_in_memory_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "place_of", lambda folder, root: place(tmp_path, fs_type="tmpfs", disk=None))
    watch = Watch()
    now = watch.now()
    for data in (tmp_path, None):
        setting = TriageOptions(tmp_path, "python", data, listing=list_files(data) if data else None)
        items = list(disk_checks.disks(setting, watch, LoadInterval(now, now)))
        gaps = {item.name for item in items if isinstance(item, TriageGap)}
        assert gaps == {"disk.sequential_mb_per_s", "disk.small_reads_per_s", "disk.write_mb_per_s", "disk.sync_ms"}


def test_data_that_does_not_answer_is_a_setting_to_fix_and_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def seen(folder: Path, root: Path) -> Place:
        asked.append(folder)
        return place(tmp_path, fs_type="tmpfs", disk=None)

    monkeypatch.setattr(disk_checks, "place_of", seen)
    watch = Watch()
    now = watch.now()
    items = disk_checks.disks(TriageOptions(tmp_path, "python", tmp_path / "hangs"), watch, LoadInterval(now, now))
    (hung,) = [item for item in items if isinstance(item, Found)]
    assert (hung.check.name, hung.check.state, hung.remedy) == ("disk.data_answers", "bad", "fix")
    assert asked == [tmp_path] and "hangs" in hung.why


@pytest.mark.parametrize("answers", [False, True])
def test_a_disk_that_hangs_while_it_is_written_to_is_to_be_fixed_and_a_slow_one_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """The writing thread is abandoned; earlier results are kept."""
    hangs = threading.Event()
    monkeypatch.setattr(disk_checks, "_ANSWERS_S", 0.2)
    monkeypatch.setattr(disk_checks, "place_of", lambda folder, root: place(tmp_path))
    monkeypatch.setattr(disk_checks, "write_file", lambda *given, **more: hangs.wait(600))
    if not answers:
        monkeypatch.setattr(disk_checks, "sync_seconds", lambda *given, **more: hangs.wait(600))
    watch = Watch()
    now = watch.now()
    setting = TriageOptions(tmp_path, "python", until_s=time.monotonic() + 0.5)
    items = list(disk_checks.disks(setting, watch, LoadInterval(now, now)))
    hangs.set()
    assert isinstance(items[0], Found) and items[0].check.name == "disk.data"
    last = items[-1]
    if answers:
        assert isinstance(last, TriageGap) and last.name == "disk.scratch_answers"
        return
    assert isinstance(last, Found) and (last.check.name, last.check.state) == ("disk.scratch_answers", "bad")
    assert last.remedy == "fix" and str(tmp_path) in last.why


def test_data_that_hangs_while_it_is_read_is_to_be_fixed_and_the_scratch_folder_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    scratch.mkdir()
    files(data, 3, 50_000)
    monkeypatch.setattr(disk_checks, "_ANSWERS_S", 0.2)
    monkeypatch.setattr(disk_checks, "_reads", lambda *given: iter([hangs.wait(600)]))
    monkeypatch.setattr(disk_checks, "cold_way", lambda path: hangs.wait(600))
    monkeypatch.setattr(disk_checks, "_writes", lambda *given: iter([fact("disk.written", 1.0)]))
    watch = Watch()
    now = watch.now()
    setting = TriageOptions(scratch, "python", data, listing=list_files(data), until_s=time.monotonic() + 2.0)
    items = [one for one in disk_checks.disks(setting, watch, LoadInterval(now, now)) if isinstance(one, Found)]
    hangs.set()
    assert [one.check.name for one in items][-2:] == ["disk.data_answers", "disk.written"]
    assert items[-2].check.state == "bad" and str(data) in items[-2].why


def test_pictures_that_do_not_fit_the_page_cache_are_a_gap_of_the_warm_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path, 8, 50_000)
    monkeypatch.setattr(disk_checks, "read_many", lambda paths, *, way, **more: Pass(100_000, 1.0, 2, way))
    watch = Watch()
    now = watch.now()
    items = list(
        disk_checks._pictures(paths, 50_000.0, DiskTrial(place(tmp_path), TINY, watch, LoadInterval(now, now)))
    )
    (gap,) = [item for item in items if isinstance(item, TriageGap)]
    assert gap.name == "disk.small_reads_warm_per_s" and "8 files" in gap.reason


def test_an_empty_folder_is_a_gap(tmp_path: Path) -> None:
    watch = Watch()
    now = watch.now()
    trial = DiskTrial(place(tmp_path), TINY, watch, LoadInterval(now, now))
    gaps = list(disk_checks._reads(list_files(tmp_path), trial))
    assert len(gaps) == 2 and all(isinstance(gap, TriageGap) and "--data" in gap.hint for gap in gaps)


def test_pictures_alone_are_a_gap_of_the_sequential_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "_pictures", lambda *given: iter(()))
    files(tmp_path, 3, 50_000)
    watch = Watch()
    now = watch.now()
    (gap,) = disk_checks._reads(list_files(tmp_path), DiskTrial(place(tmp_path), TINY, watch, LoadInterval(now, now)))
    assert isinstance(gap, TriageGap) and gap.name == "disk.sequential_mb_per_s" and "16" in gap.reason


def test_a_quick_and_a_full_one_stay_below_two_gigabytes() -> None:
    for most in (disk_checks.QUICK, disk_checks.FULL):
        moved = most.file_bytes + most.read_bytes + 5 * most.pictures * disk_checks.PICTURE_BYTES
        assert moved < 2e9
