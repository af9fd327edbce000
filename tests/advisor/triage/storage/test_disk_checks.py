"""Reading as a training does, on small files; limits, remedies and the disturbance by others from made-up trees."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from probe_trees import V2_MOUNTS, write_tree
from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.host.other_load import LoadInterval, Moment, Watch
from rn50_advisor.advisor.triage.storage import disk_checks, timed_io
from rn50_advisor.advisor.triage.storage.disk_checks import Amounts, Trial
from rn50_advisor.advisor.triage.storage.folder_place import Place, place_of
from rn50_advisor.advisor.triage.storage.timed_io import (
    Pass,
    Way,
    cached_share,
    cold_way,
    list_files,
    read_in_a_row,
    read_many,
    some_of,
    write_file,
    write_many,
)
from rn50_advisor.probes.host.storage.disk_probe import Mount

TINY = Amounts(2 << 20, 8, 1.0, 4 << 20)


def files(folder: Path, count: int, size: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.jpg" for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(size))
    return paths


def test_files_are_sorted_by_what_they_are_good_for(tmp_path: Path) -> None:
    files(tmp_path / "a", 3, 100_000)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "shard.tar").write_bytes(bytes(3 << 20))
    (tmp_path / "b" / "labels.txt").write_bytes(b"x")
    (tmp_path / "b" / "link.jpg").symlink_to(tmp_path / "a" / "0.jpg")
    listing = list_files(tmp_path)
    assert len(listing.small) == 3 and {size for _, size in listing.small} == {100_000}
    assert listing.largest == (tmp_path / "b" / "shard.tar", 3 << 20)


def test_a_file_that_goes_while_a_folder_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def goes(path: str, mode: int) -> bool:
        asked.append(path)
        if len(asked) == 1:
            Path(path).unlink()
        return True

    files(tmp_path / "a", 3, 100_000)
    monkeypatch.setattr(os, "access", goes)
    assert len(list_files(tmp_path).small) == 2


@pytest.mark.parametrize("size", [0, 1, 4096, 100_000, (1 << 20) + 5, 2 << 20])
def test_whole_files_are_read_to_their_end(tmp_path: Path, size: int) -> None:
    (path,) = files(tmp_path, 1, size)
    ways: tuple[Way, ...] = (cold_way(path), "dropped", "warm")
    for way in ways:
        done = read_many([path], way=way, threads=1, seconds=5.0)
        assert (done.read_bytes, done.files) == (size, 1)


def test_each_file_is_read_once_by_whomever(tmp_path: Path) -> None:
    done = read_many(files(tmp_path, 20, 10_000), way="dropped", threads=4, seconds=10.0)
    assert (done.files, done.read_bytes) == (20, 200_000)


def test_a_file_that_has_gone_is_left_out(tmp_path: Path) -> None:
    paths = files(tmp_path, 3, 10_000)
    paths[1].unlink()
    assert read_many(paths, way="dropped", threads=2, seconds=5.0).files == 2


def test_a_row_ends_by_bytes_or_with_the_file(tmp_path: Path) -> None:
    (path,) = files(tmp_path, 1, 3 << 20)
    ways: tuple[Way, ...] = (cold_way(path), "dropped")
    for way in ways:
        assert read_in_a_row(path, way=way, seconds=10.0, most_bytes=2 << 20).read_bytes == 2 << 20
        assert read_in_a_row(path, way=way, seconds=10.0, most_bytes=3 << 20).read_bytes == 3 << 20


def test_what_is_read_warm_was_read_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = files(tmp_path, 1, 3 << 20)
    asked: list[int] = []
    real = read_in_a_row

    def seen(path: Path, *, way: Way, seconds: float, most_bytes: int) -> Pass:
        asked.append(most_bytes)
        return real(path, way=way, seconds=seconds, most_bytes=min(most_bytes, 1 << 20))

    monkeypatch.setattr(timed_io, "read_in_a_row", seen)
    assert timed_io.read_warm(path).read_bytes == 1 << 20
    assert asked == [timed_io._WARM_BYTES, 1 << 20]


def test_writing_stops_by_bytes(tmp_path: Path) -> None:
    done = write_file(tmp_path / "x", most_bytes=2 << 20, seconds=10.0)
    assert done.read_bytes == (tmp_path / "x").stat().st_size == 2 << 20


def test_many_small_files_are_written_whole(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(40)]
    assert write_many(paths, 5000, seconds=60.0) == paths
    assert {path.stat().st_size for path in paths} == {5000} and len({path.read_bytes() for path in paths}) == 40


class SlowClock:
    """Time passes only while something is waited for until it is on a disk of so many bytes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_per_s: float) -> None:
        self.now_s, self._rate = 100.0, bytes_per_s
        self._there: dict[int, int] = {}
        self._lock = threading.Lock()
        monkeypatch.setattr(timed_io, "time", SimpleNamespace(perf_counter=lambda: self.now_s))
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, fd: int) -> None:
        told = os.fstat(fd)
        with self._lock:
            self.now_s += (told.st_size - self._there.get(told.st_ino, 0)) / self._rate
            self._there[told.st_ino] = told.st_size


def test_a_volume_that_is_throttled_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory takes 256 MB at once; at 1 MB/s they are on the disk four minutes later."""
    SlowClock(monkeypatch, 1e6)
    done = write_file(tmp_path / "x", most_bytes=256 << 20, seconds=3.0)
    assert done.mb_per_s == pytest.approx(1.0) and done.seconds < 10.0


def test_as_many_small_files_are_written_as_time_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowClock(monkeypatch, 1e6)
    paths = [tmp_path / str(number) for number in range(400)]
    there = write_many(paths, 100_000, seconds=3.0)
    assert 10 <= len(there) <= 60 and {path.stat().st_size for path in there} == {100_000}


def test_whoever_is_interrupted_leaves_nobody_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(thread: threading.Thread) -> None:
        readers.append(thread)
        raise KeyboardInterrupt

    readers: list[threading.Thread] = []
    waited_for = threading.Thread.join
    monkeypatch.setattr(timed_io, "_read_whole", lambda *given: time.sleep(0.01))
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_many([tmp_path] * 100_000, way="warm", threads=2, seconds=600.0)
    waited_for(readers[0], 30.0)
    assert not readers[0].is_alive()


@pytest.mark.parametrize(("size", "taken"), [(100_000, 400), (2 << 20, 162)])
def test_of_large_pictures_fewer_are_read(size: int, taken: int) -> None:
    """Nobody was asked for more than 2 GB, and each is read three times."""
    small = [(Path(str(number)), size) for number in range(5000)]
    found = some_of(small, most_files=disk_checks.QUICK.pictures, most_bytes=disk_checks._PICTURES_BYTES)
    assert len(found) == taken and 3 * sum(bytes_ for _, bytes_ in found) < 1.1e9
    assert len({number for number, _ in found}) == taken


def test_the_page_cache_is_asked(tmp_path: Path) -> None:
    (path,) = files(tmp_path, 1, 1 << 20)
    with path.open("rb") as file:
        file.read()
        share = cached_share(file.fileno(), 1 << 20)
    assert share is None or share == 1.0  # some file systems do not tell
    with path.open("rb") as file:
        assert cached_share(file.fileno(), 0) is None


def place(tmp_path: Path, **mount: object) -> Place:
    given = {"device": "/dev/x", "mount_point": "/", "fs_type": "ext4", "network": False, "disk": "nvme0n1", **mount}
    return Place(tmp_path, Mount(**given), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mount", "limits", "remedy"),
    [
        ({"model": "Amazon EC2 NVMe Instance Storage"}, {}, "hand-back"),
        ({"model": "Amazon Elastic Block Store"}, {}, "fix"),
        ({"model": "nvme_card-pd"}, {}, "fix"),
        ({"model": "nvme_card"}, {}, "hand-back"),
        ({"model": "SAMSUNG MZQL2"}, {"disk.limit_read_bytes_s": 1e6}, "fix"),
        ({"disk": "vda"}, {}, "fix"),
        (
            {"disk": "md0", "below": ("nvme1n1", "nvme2n1"), "model": "Amazon EC2 NVMe Instance Storage"},
            {},
            "hand-back",
        ),
        ({"disk": "dm-0", "below": ("nvme1n1",), "model": "SAMSUNG MZQL2"}, {}, "hand-back"),
        ({"disk": "md0", "below": ("nvme1n1", "nvme2n1"), "model": "Amazon Elastic Block Store"}, {}, "fix"),
        ({"disk": "md0", "below": ("nvme1n1", "sda"), "model": "SAMSUNG MZQL2"}, {}, "fix"),
        ({"disk": "md0", "below": (), "model": "SAMSUNG MZQL2"}, {}, "fix"),  # on nothing that can be seen
        ({"disk": "loop0", "below": ("nvme0n1",), "model": "SAMSUNG MZQL2"}, {}, "fix"),
        ({"disk": None, "network": True, "fs_type": "nfs4"}, {}, "fix"),
    ],
)
def test_only_the_machines_own_disk_is_a_reason_to_give_it_back(
    tmp_path: Path, mount: dict[str, object], limits: dict[str, float], remedy: str
) -> None:
    base = place(tmp_path, **mount)
    assert Place(base.folder, base.mount, limits).remedy == remedy


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
    _, others = disk_checks._timed(Trial(place(tmp_path), TINY, watch, idle), lambda: one)
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
    _, why = disk_checks._timed(Trial(where, TINY, watch, idle), lambda: one)
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
    """Whoever writes to it is left behind; what came before is kept."""
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


def test_pictures_that_could_not_be_brought_into_the_page_cache_have_no_warm_rate_and_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path, 8, 50_000)
    monkeypatch.setattr(disk_checks, "read_many", lambda paths, *, way, **more: Pass(100_000, 1.0, 2, way))
    watch = Watch()
    now = watch.now()
    items = list(disk_checks._pictures(paths, 50_000.0, Trial(place(tmp_path), TINY, watch, LoadInterval(now, now))))
    (gap,) = [item for item in items if isinstance(item, TriageGap)]
    assert gap.name == "disk.small_reads_warm_per_s" and "8 files" in gap.reason


def test_an_empty_folder_is_a_gap(tmp_path: Path) -> None:
    watch = Watch()
    now = watch.now()
    trial = Trial(place(tmp_path), TINY, watch, LoadInterval(now, now))
    gaps = list(disk_checks._reads(list_files(tmp_path), trial))
    assert len(gaps) == 2 and all(isinstance(gap, TriageGap) and "--data" in gap.hint for gap in gaps)


def test_pictures_alone_have_no_row_and_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "_pictures", lambda *given: iter(()))
    files(tmp_path, 3, 50_000)
    watch = Watch()
    now = watch.now()
    (gap,) = disk_checks._reads(list_files(tmp_path), Trial(place(tmp_path), TINY, watch, LoadInterval(now, now)))
    assert isinstance(gap, TriageGap) and gap.name == "disk.sequential_mb_per_s" and "16" in gap.reason


def test_a_huge_flat_folder_is_left_when_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names come in pieces: nothing may read all of them before the first file."""
    files(tmp_path, 50, 5000)
    clock = iter(range(10_000))
    monkeypatch.setattr(timed_io, "time", SimpleNamespace(monotonic=lambda: 0.1 * next(clock)))
    assert 20 <= len(list_files(tmp_path).small) <= 30


def test_a_quick_and_a_full_one_stay_below_two_gigabytes() -> None:
    for most in (disk_checks.QUICK, disk_checks.FULL):
        moved = most.file_bytes + most.read_bytes + 5 * most.pictures * disk_checks.PICTURE_BYTES
        assert moved < 2e9


def test_blocks_are_a_whole_number_of_pages() -> None:
    assert timed_io.BLOCK_BYTES % os.sysconf("SC_PAGE_SIZE") == 0
