"""Reading and writing for a time, and which files."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from disk_files import files
from rn50_advisor.advisor.triage.storage import disk_checks, timed_io
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
        status = os.fstat(fd)
        with self._lock:
            self.now_s += (status.st_size - self._there.get(status.st_ino, 0)) / self._rate
            self._there[status.st_ino] = status.st_size


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
    assert share is None or share == 1.0  # some file systems do not report it
    with path.open("rb") as file:
        assert cached_share(file.fileno(), 0) is None


def test_a_huge_flat_folder_is_left_when_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names come in pieces: nothing may read all of them before the first file."""
    files(tmp_path, 50, 5000)
    clock = iter(range(10_000))
    monkeypatch.setattr(timed_io, "time", SimpleNamespace(monotonic=lambda: 0.1 * next(clock)))
    assert 20 <= len(list_files(tmp_path).small) <= 30


def test_blocks_are_a_whole_number_of_pages() -> None:
    assert timed_io.BLOCK_BYTES % os.sysconf("SC_PAGE_SIZE") == 0
