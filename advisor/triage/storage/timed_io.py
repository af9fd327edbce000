"""Reading and writing as a training does it, timed: beyond the page cache where the file system allows that, and out of it."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

BLOCK_BYTES = 1 << 20
SMALL_LEAST_BYTES, SMALL_MOST_BYTES = 4 << 10, 2 << 20  # pictures; larger files are shards and read sequentially
_PROBES = 64  # places of a file at which its presence in the page cache is checked
_LISTED_MOST, _LISTING_S = 20_000, 3.0
_WARM_S, _WARM_BYTES = 1.0, 64 << 20
_SYNCERS = 16
_FIRST_PIECE_BYTES = 4 << 20  # of a written file; each further piece is as large as all before it


# around: bypasses the page cache; dropped: reads after the file was dropped from it; warm: reads from it.
Way = Literal["around", "dropped", "warm"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A timed read. `cached_share`: share of the bytes that came from the page cache; None if it was bypassed or is unknown."""

    read_bytes: int
    seconds: float
    files: int
    way: Way
    cached_share: float | None = None

    @property
    def mb_per_s(self) -> float:
        return self.read_bytes / 1e6 / max(self.seconds, 1e-9)

    @property
    def files_per_s(self) -> float:
        return self.files / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Listing:
    """Files below a folder, by what they are good for."""

    small: tuple[tuple[Path, int], ...]  # with their sizes
    largest: tuple[Path, int] | None


def list_files(folder: Path) -> Listing:
    """Looks for a while, not everywhere: a data set may have millions of files, also in one folder, on a server far away."""
    small: list[tuple[Path, int]] = []
    largest: tuple[Path, int] | None = None
    for path, size in itertools.islice(_files(folder, until_s=time.monotonic() + _LISTING_S), _LISTED_MOST):
        if SMALL_LEAST_BYTES <= size <= SMALL_MOST_BYTES:
            small.append((path, size))
        if largest is None or size > largest[1]:
            largest = (path, size)
    return Listing(tuple(small), largest)


def some_of(small: Sequence[tuple[Path, int]], *, most_files: int, most_bytes: int) -> list[tuple[Path, int]]:
    """Returns files spread evenly over the data set, since neighbours often lie on the same part of a disk."""
    spread = small[:: max(1, len(small) // most_files)][:most_files]
    totals = itertools.accumulate(size for _, size in spread)
    return [one for one, total in zip(spread, totals, strict=True) if total <= most_bytes]


def _files(folder: Path, *, until_s: float) -> Iterator[tuple[Path, int]]:
    """Yields readable files with their sizes, in directory order. Sorting, like os.walk, would first read all names of a folder."""
    waiting = [folder]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if time.monotonic() >= until_s:
                    return
                with contextlib.suppress(OSError):  # one that has just gone, or that its server lost, is one less
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False) and os.access(entry.path, os.R_OK):
                        yield Path(entry.path), entry.stat(follow_symlinks=False).st_size


def cold_way(path: Path) -> Way:
    """A way to read past the page cache: direct I/O or, where that is refused, dropping the file from the cache first."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return "dropped"
    try:
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            os.preadv(fd, [buffer], 0)  # some file systems refuse only here
    except OSError:
        return "dropped"
    finally:
        os.close(fd)
    return "around"


def read_in_a_row(path: Path, *, way: Way, seconds: float, most_bytes: int) -> Pass:
    """Reads one file sequentially in blocks, for at most `seconds` and `most_bytes`. Raises OSError."""
    with _opened(path, way) as fd, mmap.mmap(-1, BLOCK_BYTES) as buffer:
        size = os.fstat(fd).st_size
        cached = cached_share(fd, size) if way == "dropped" else None
        began, total, offset = time.perf_counter(), 0, 0
        while total < most_bytes and time.perf_counter() - began < seconds:
            got = os.preadv(fd, [buffer], offset)
            total, offset = total + got, offset + got
            if got < BLOCK_BYTES:
                if way != "around" or total == 0:
                    break  # a second round would come from the page cache
                offset = 0
        return Pass(total, time.perf_counter() - began, 1, way, cached)


def read_warm(path: Path) -> Pass:
    """Out of the page cache, what can be brought there in a short time. Raises OSError."""
    there = read_in_a_row(path, way="warm", seconds=_WARM_S, most_bytes=_WARM_BYTES)
    return read_in_a_row(path, way="warm", seconds=_WARM_S, most_bytes=there.read_bytes)


def read_many(paths: Sequence[Path], *, way: Way, threads: int, seconds: float) -> Pass:
    """Reads whole files in random order with several threads, like loader workers. An interruption leaves no thread reading."""
    order = list(paths)
    random.Random(0).shuffle(order)
    waiting = iter(order)
    lock = threading.Lock()
    done: list[tuple[int, float | None]] = []
    over = threading.Event()
    until = time.perf_counter() + seconds

    def reader() -> None:
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            while time.perf_counter() < until and not over.is_set():
                with lock:
                    path = next(waiting, None)
                if path is None:
                    return
                with contextlib.suppress(OSError):
                    done.append(_read_whole(path, buffer, way))

    workers = [threading.Thread(target=reader) for _ in range(threads)]
    began = time.perf_counter()
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        over.set()
    took = time.perf_counter() - began
    shares = [share for _, share in done if share is not None]
    cached = sum(shares) / len(shares) if shares else None
    return Pass(sum(size for size, _ in done), took, len(done), way, cached)


def _read_whole(path: Path, buffer: mmap.mmap, way: Way) -> tuple[int, float | None]:
    with _opened(path, way) as fd:
        cached = cached_share(fd, os.fstat(fd).st_size) if way == "dropped" else None
        total = 0
        while got := os.preadv(fd, [buffer], total):
            total += got
            if got % mmap.PAGESIZE:
                break  # the end of the file; beyond the page cache an odd offset may not be asked for
        return total, cached


@contextlib.contextmanager
def _opened(path: Path, way: Way) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if way == "around" else 0))
    try:
        if way == "dropped":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        yield fd
    finally:
        os.close(fd)


def cached_share(fd: int, size: int) -> float | None:
    """Share of sampled positions in the file that are in the page cache; None if the file system does not report it."""
    if size <= 0:
        return None
    places = sorted({min(size - 1, size * n // _PROBES) for n in range(_PROBES)})
    there = 0
    with mmap.mmap(-1, mmap.PAGESIZE) as buffer:
        for place in places:
            try:
                os.preadv(fd, [memoryview(buffer)[:1]], place, os.RWF_NOWAIT)
                there += 1
            except BlockingIOError:
                continue
            except OSError:
                return None
    return there / len(places)


def write_file(path: Path, *, most_bytes: int, seconds: float) -> Pass:
    """Writes until it is so large or so much time has gone, and waits until all of it is on the disk. Raises OSError.

    In pieces, each as large as all before it, each waited for: memory takes at once what a throttled volume needs minutes for.
    """
    block = os.urandom(BLOCK_BYTES)  # zeros and repeated blocks are free on some volumes
    began, total = time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while total < most_bytes and time.perf_counter() - began < seconds:
            until = min(most_bytes, max(_FIRST_PIECE_BYTES, 2 * total))
            while total < until and time.perf_counter() - began < seconds:
                total += file.write(total.to_bytes(8, "little") + block[8:])
            os.fsync(file.fileno())
        took = time.perf_counter() - began
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return Pass(total, took, 1, "warm")


def write_many(paths: Sequence[Path], size: int, *, seconds: float) -> list[Path]:
    """Small files on the disk, as many of them as so much time allows; several at once, because one by one each would wait.

    Raises OSError.
    """
    until = time.perf_counter() + seconds

    def write(path: Path) -> bool:
        if time.perf_counter() >= until:
            return False
        with path.open("wb") as file:
            file.write(os.urandom(size))
            file.flush()
            os.fsync(file.fileno())
        return True

    with ThreadPoolExecutor(_SYNCERS) as pool:
        return [path for path, there in zip(paths, pool.map(write, paths), strict=True) if there]


def sync_seconds(path: Path, times: int, *, seconds: float) -> list[float]:
    """Durations of small writes with fsync, the end of every checkpoint. Raises OSError."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    with path.open("wb", buffering=0) as file:
        while len(took) < times and (not took or time.perf_counter() < until):
            began = time.perf_counter()
            file.write(os.urandom(mmap.PAGESIZE))
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return took
