"""Reading and writing as a training does it, timed: beyond the page cache where the file system allows that, and out of it."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 1 << 20
SMALL_LEAST_BYTES, SMALL_MOST_BYTES = 4 << 10, 2 << 20  # pictures; what is larger is a shard and read in a row
_PROBES = 64  # places at which a file is asked whether it lies in the page cache
_LISTED_MOST, _LISTING_S = 20_000, 3.0
_SYNCERS = 16


@dataclass(frozen=True, slots=True)
class Pass:
    """`cached_share`: of the bytes, what came out of the page cache; None: it was gone around, or nobody can tell."""

    read_bytes: int
    seconds: float
    files: int
    direct: bool
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
    """Looks for a while, not everywhere: a data set may have millions of files, on a server far away."""
    small: list[tuple[Path, int]] = []
    largest: tuple[Path, int] | None = None
    until = time.monotonic() + _LISTING_S
    for count, (path, size) in enumerate(_files(folder)):
        if SMALL_LEAST_BYTES <= size <= SMALL_MOST_BYTES:
            small.append((path, size))
        if largest is None or size > largest[1]:
            largest = (path, size)
        if count >= _LISTED_MOST or time.monotonic() >= until:
            break
    return Listing(tuple(small), largest)


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for directory, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(directory, name)
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                    yield path, path.stat().st_size


def read_in_a_row(path: Path, *, seconds: float, most_bytes: int) -> Pass:
    """One file from its begin, in pieces, for so long or so much at most. Raises OSError."""
    with _opened(path) as (fd, direct), mmap.mmap(-1, BLOCK_BYTES) as buffer:
        size = os.fstat(fd).st_size
        cached = None if direct else cached_share(fd, size)
        began, total, offset = time.perf_counter(), 0, 0
        while total < most_bytes and time.perf_counter() - began < seconds:
            got = os.preadv(fd, [buffer], offset)
            total, offset = total + got, offset + got
            if got < BLOCK_BYTES:
                if not direct or total == 0:
                    break  # a second round would come out of the page cache
                offset = 0
        return Pass(total, time.perf_counter() - began, 1, direct, cached)


def read_many(paths: Sequence[Path], *, threads: int, seconds: float, warm: bool = False) -> Pass:
    """Whole files in random order, by several threads at once as loader workers do; `warm`: out of the page cache."""
    order = list(paths)
    random.Random(0).shuffle(order)
    waiting = iter(order)
    lock, done = threading.Lock(), []
    until = time.perf_counter() + seconds

    def reader() -> None:
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:
            while time.perf_counter() < until:
                with lock:
                    path = next(waiting, None)
                if path is None:
                    return
                with contextlib.suppress(OSError):
                    done.append(_read_whole(path, buffer, warm=warm))

    workers = [threading.Thread(target=reader) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - began
    read = sum(size for size, _, _ in done)
    direct = bool(done) and all(went_around for _, went_around, _ in done)
    shares = [share for _, _, share in done if share is not None]
    return Pass(read, took, len(done), direct, sum(shares) / len(shares) if shares else None)


def _read_whole(path: Path, buffer: mmap.mmap, *, warm: bool) -> tuple[int, bool, float | None]:
    with _opened(path, warm=warm) as (fd, direct):
        cached = None if direct or warm else cached_share(fd, os.fstat(fd).st_size)
        total = 0
        while got := os.preadv(fd, [buffer], total):
            total += got
            if got % mmap.PAGESIZE:
                break  # the end of the file; beyond the page cache an odd offset may not be asked for
        return total, direct, cached


@contextlib.contextmanager
def _opened(path: Path, *, warm: bool = False) -> Iterator[tuple[int, bool]]:
    """(descriptor, whether the page cache is gone around); where that cannot be had, the file's pages are dropped first."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    direct = not warm
    try:
        fd = os.open(path, flags | (0 if warm else os.O_DIRECT))
    except OSError:
        if warm:
            raise
        fd, direct = os.open(path, flags), False
    try:
        if not direct and not warm:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        yield fd, direct
    finally:
        os.close(fd)


def cached_share(fd: int, size: int) -> float | None:
    """Of some places in the file, those that lie in the page cache; None where the file system does not tell."""
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
    """Writes until it is so large or so much time has gone, and waits until all of it is on the disk. Raises OSError."""
    block = os.urandom(BLOCK_BYTES)  # zeros and repeated blocks are free on some volumes
    began, total = time.perf_counter(), 0
    with path.open("wb", buffering=0) as file:
        while total < most_bytes and time.perf_counter() - began < seconds:
            total += file.write(total.to_bytes(8, "little") + block[8:])
        os.fsync(file.fileno())
        took = time.perf_counter() - began
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return Pass(total, took, 1, False)


def write_many(paths: Sequence[Path], size: int) -> None:
    """Small files, all of them on the disk in the end; synced together, because one after the other each would wait. Raises OSError."""
    for number, path in enumerate(paths):
        path.write_bytes(number.to_bytes(8, "little") + os.urandom(size - 8))
    with ThreadPoolExecutor(_SYNCERS) as pool:
        list(pool.map(_sync, paths))


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_seconds(path: Path, times: int, *, seconds: float) -> list[float]:
    """How long it takes each time until a small write is on the disk: what ends every checkpoint. Raises OSError."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    with path.open("wb", buffering=0) as file:
        while len(took) < times and (not took or time.perf_counter() < until):
            began = time.perf_counter()
            file.write(os.urandom(mmap.PAGESIZE))
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return took
