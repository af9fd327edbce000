"""Reading as a training does, on small files; limits, remedies and the disturbance by others from made-up trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from probe_trees import V2_MOUNTS, write_tree

from advisor.core.triage import Band, TriageGap
from advisor.triage import disk, reading
from advisor.triage.disk import Amounts, Place, Trial
from advisor.triage.found import Found, Setting, judged
from advisor.triage.load import Moment, Stretch, Watch
from advisor.triage.reading import Pass, Way, cached_share, cold_way, list_files, read_in_a_row, read_many, write_file
from probes.host.disk import Mount

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


def test_writing_stops_by_bytes(tmp_path: Path) -> None:
    done = write_file(tmp_path / "x", most_bytes=2 << 20, seconds=10.0)
    assert done.read_bytes == (tmp_path / "x").stat().st_size == 2 << 20


def test_many_small_files_are_written_whole(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(40)]
    reading.write_many(paths, 5000)
    assert {path.stat().st_size for path in paths} == {5000} and len({path.read_bytes() for path in paths}) == 40


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
    found = list(disk._limit(disk.place_of(Path("/data"), root)))
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
    idle = Stretch(moment(0.0, {"nvme0n1": 0.0}), moment(10.0, {"nvme0n1": idle_bytes}))
    watch = Played(moment(10.0, {"nvme0n1": 1e9}), moment(13.0, {"nvme0n1": 1e9 + moved}))
    one = Pass(100_000_000, 3.0, 1, "around")
    _, others = disk._timed(Trial(place(tmp_path), TINY, watch, idle), lambda: one)
    assert bool(others) == busy
    slow = judged("x", 33.0, "MB/s", Band(100.0, None), remedy="hand-back", hint="slow", why="slow")
    found = disk._proved(slow, one, others)
    assert found.check.state == ("unknown" if busy else "bad")


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (Pass(1, 1.0, 1, "around"), "ok"),
        (Pass(1, 1.0, 1, "dropped", 0.05), "ok"),
        (Pass(1, 1.0, 1, "dropped", 0.5), "unknown"),
        (Pass(1, 1.0, 1, "dropped", None), "unknown"),
    ],
)
def test_what_came_out_of_the_page_cache_says_nothing_good_of_the_disk(one: Pass, state: str) -> None:
    fast = judged("x", 5000.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk._proved(fast, one, "").check.state == state
    slow = judged("x", 3.0, "MB/s", Band(100.0, None), remedy="fix", hint="slow", why="slow")
    assert disk._proved(slow, one, "").check.state == "bad"


def test_data_is_read_and_never_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "QUICK", TINY)
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    scratch.mkdir()
    files(data, 20, 50_000)
    before = {path: path.stat().st_mtime_ns for path in data.iterdir()}
    watch = Watch()
    now = watch.now()
    items = list(disk.disks(Setting(scratch, "python", data), watch, Stretch(now, now)))
    names = {item.check.name for item in items if isinstance(item, Found)}
    assert {path: path.stat().st_mtime_ns for path in data.iterdir()} == before
    if "disk.sync_ms" in names:  # where temporary files do not lie in memory
        assert {"disk.small_reads_per_s", "disk.small_reads_warm_per_s", "disk.write_mb_per_s"} <= names
        small = next(item for item in items if isinstance(item, Found) and item.check.name == "disk.small_reads_per_s")
        assert small.check.expected.lo == pytest.approx(0.75 * 125e6 / 50_000)


def test_data_in_memory_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "place_of", lambda folder, root: place(tmp_path, fs_type="tmpfs", disk=None))
    watch = Watch()
    now = watch.now()
    items = list(disk.disks(Setting(tmp_path, "python", tmp_path), watch, Stretch(now, now)))
    gaps = [item.name for item in items if isinstance(item, TriageGap)]
    assert gaps == ["disk.sequential_mb_per_s", "disk.sync_ms"]


def test_an_empty_folder_is_a_gap(tmp_path: Path) -> None:
    watch = Watch()
    now = watch.now()
    trial = Trial(place(tmp_path), TINY, watch, Stretch(now, now))
    (gap,) = disk._reads(tmp_path, trial)
    assert isinstance(gap, TriageGap) and "--data" in gap.hint


def test_a_quick_and_a_full_one_stay_below_two_gigabytes() -> None:
    for most in (disk.QUICK, disk.FULL):
        moved = most.file_bytes + most.read_bytes + 5 * most.pictures * disk.PICTURE_BYTES
        assert moved < 2e9


def test_blocks_are_a_whole_number_of_pages() -> None:
    assert reading.BLOCK_BYTES % os.sysconf("SC_PAGE_SIZE") == 0
