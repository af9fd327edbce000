"""Checks of the disks of the training data and of checkpoints: sequential reads, small files, writes, syncs."""

from __future__ import annotations

import contextlib
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import DATA_PLACE, Band, Check, TriageGap
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.triage.deadline import as_they_come, within
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, fact, judged, unproved
from rn50_advisor.advisor.triage.host.other_load import LoadInterval, Watch
from rn50_advisor.advisor.triage.host.processor import cores_allowed
from rn50_advisor.advisor.triage.storage.folder_place import Place, place_of
from rn50_advisor.advisor.triage.storage.timed_io import (
    Listing,
    Pass,
    cold_way,
    read_in_a_row,
    read_many,
    read_warm,
    some_of,
    sync_seconds,
    write_file,
    write_many,
)
from rn50_advisor.rules.cpu.cpu001_a_cpu_quota_throttles_the_job import RULE as QUOTA

# Baseline of a cloud's standard SSD volume, AWS gp3: 125 MB/s and 3,000 operations a second.
VOLUME_MB_PER_S, VOLUME_READS_PER_S, _KEPT = 125.0, 3000.0, 0.75
_VOLUME = "0.75 × the baseline of AWS gp3, the most basic SSD volume: 125 MB/s, 3,000 reads/s (docs.aws.amazon.com, EBS volume types)"
ROW_BAND = Band(_KEPT * VOLUME_MB_PER_S, None, _VOLUME)
# Above what a turning disk takes to come around twice (8.3 ms each at 7,200 a minute) a small write waits for something else.
SYNC_BAND = Band(
    None, 25.0, "three turns of a disk at 7,200 rpm; SSD volumes take 0.5 to 5 ms, etcd's guide asks for 10"
)
_READS, _WRITES = ("disk.sequential_mb_per_s", "disk.small_reads_per_s"), ("disk.write_mb_per_s", "disk.sync_ms")
PICTURE_BYTES = 112 << 10  # ImageNet's mean
_ROW_LEAST_BYTES = 16 << 20
_DATA, _SCRATCH = "disk.data_answers", "disk.scratch_answers"
_ANSWERS_S = 5.0  # a throttled volume answers to a touch in a second or two
_OTHERS_SHARE = 0.25  # of what we moved ourselves: more of it by others, and the rate is not the disk's
_OTHERS_IDLE_MB_PER_S = 5.0
_MEASURE_AGAIN = ": measure again when the disk is idle"
_CACHED_SHARE = 0.1  # of the bytes, from the page cache: makes a rate a tenth too good


@dataclass(frozen=True, slots=True)
class Amounts:
    """Upper bounds on bytes read and written, and on the time for each."""

    file_bytes: int
    pictures: int
    seconds: float
    read_bytes: int


# Together less than 2 GB written and read: pictures are written once and read three times.
QUICK = Amounts(256 << 20, 400, 3.0, 512 << 20)
FULL = Amounts(512 << 20, 1000, 10.0, 512 << 20)
LARGE = Amounts(4 << 30, 4000, 30.0, 4 << 30)  # beyond what a volume does in a burst; asked for first
LARGE_WORDS = "writes 4.7 GB to its scratch folder and reads 6 GB"
# Read three times, beside all else below 2 GB; of pictures larger than ImageNet's fewer are read.
_PICTURES_BYTES = 340_000_000


def amounts(setting: TriageOptions) -> Amounts:
    return LARGE if setting.large else FULL if setting.full else QUICK


@dataclass(frozen=True, slots=True)
class DiskTrial:
    """A measurement's folder, its limits, and the disk activity before it."""

    place: Place
    most: Amounts
    watch: Watch
    idle: LoadInterval


def disks(setting: TriageOptions, watch: Watch, idle: LoadInterval) -> Iterator[Item]:
    """Checks each place in a thread of its own: a disk that stops answering blocks whoever uses it."""

    def trial(folder: Path) -> DiskTrial:
        return DiskTrial(place_of(folder, setting.root), amounts(setting), watch, idle)

    def of(place: Path) -> Iterator[Item]:
        read = trial(place)
        yield fact(DATA_PLACE, read.place.words)
        yield from _limit(read.place)
        if setting.listing is not None:
            yield from _reads(setting.listing, read)

    def of_scratch() -> Iterator[Item]:
        if setting.data is None:
            yield from of(scratch)
        yield from _writes(setting, trial(scratch))

    scratch, data, listing = setting.scratch, setting.data, setting.listing
    if data is not None and listing is None:
        yield _hung(_DATA, data)
    elif data is not None and listing is not None:
        some, share_s = listing.largest[0] if listing.largest else data, setting.left_s / 2 - _ANSWERS_S
        yield from as_they_come(lambda: of(data), share_s, lambda: _late(_DATA, data, lambda: cold_way(some)))
    yield from as_they_come(
        of_scratch,
        setting.left_s - _ANSWERS_S,
        lambda: _late(_SCRATCH, scratch, lambda: sync_seconds(scratch / "answers", 1, seconds=0.0)),
    )


def _late(name: str, folder: Path, touch: Callable[[], object]) -> Item:
    """The result for a check that missed its deadline: the place hangs if it does not even answer a touch."""

    def touched() -> bool:
        with contextlib.suppress(OSError):
            touch()
        return True

    if within(_ANSWERS_S, touched) is None:
        return _hung(name, folder)
    return TriageGap(
        name, f"{folder} was still being measured when time ran out", "it is slow, or the time limit was near"
    )


def _hung(name: str, folder: Path) -> Found:
    """The result for a hung place, which is not accessed again: any access would block, too."""
    why = (
        f"{folder} does not answer, and would block a training job too; check its server or disk (dmesg), or remount it"
    )
    return Found(Check(name, "no", "", Band(source="a responding folder"), "bad", why), "fix", why=why)


def _gaps(names: Iterable[str], reason: str, hint: str) -> Iterator[TriageGap]:
    return (TriageGap(name, reason, hint) for name in names)


def _limit(place: Place) -> Iterator[Item]:
    kinds = (
        ("disk.limit_read_bytes_s", "disk.limit_mb_per_s", "MB/s", 1e-6, VOLUME_MB_PER_S),
        ("disk.limit_reads_s", "disk.limit_reads_per_s", "reads/s", 1.0, VOLUME_READS_PER_S),
    )
    for metric, name, unit, factor, usual in kinds:
        if metric in place.limits:
            value = factor * place.limits[metric]
            hint = f"{place.words} is limited to {fmt.number(value)} {unit}: {place.advice}"
            yield judged(
                name, value, unit, Band(_KEPT * usual, None, _VOLUME), remedy="fix", strict=True, hint=hint, why=hint
            )


def _reads(listing: Listing, trial: DiskTrial) -> Iterator[Item]:
    place, largest = trial.place, listing.largest
    if place.in_memory:
        why = f"{place.words} is in memory: no disk is read"
        yield from _gaps(_READS, why, "the place that it was copied from matters only in the first epoch")
        return
    if largest is None or (largest[1] < _ROW_LEAST_BYTES and not listing.small):
        reason = "no readable file was found there" if largest is None else "no file there is as large as an image"
        yield from _gaps(
            _READS, f"{place.folder}: {reason}", "name the folder that holds the training data with --data"
        )
        return
    if largest[1] >= _ROW_LEAST_BYTES:
        yield from _row(largest[0], trial)
    else:
        why = f"no file of {fmt.bytes_(_ROW_LEAST_BYTES)} was found in {place.folder}"
        yield TriageGap(_READS[0], why, "images are read one by one: small reads are what counts")
    if not listing.small:
        yield TriageGap(_READS[1], f"{place.folder} holds no files of an image's size", "shards are read sequentially")
        return
    room = max(_PICTURES_BYTES, trial.most.pictures * PICTURE_BYTES)
    pictures = some_of(listing.small, most_files=trial.most.pictures, most_bytes=room)
    sizes = [size for _, size in pictures]
    yield from _pictures([path for path, _ in pictures], statistics.fmean(sizes), trial)


def _writes(setting: TriageOptions, trial: DiskTrial) -> Iterator[Item]:
    """Measures writes in the scratch folder. Reads use the same files unless the user named a data folder."""
    place, most = trial.place, trial.most
    unmeasured = (*_WRITES, *(_READS if setting.data is None else ()))
    if place.in_memory:
        yield from _gaps(unmeasured, f"{place.words} is in memory (tmpfs)", "name a folder on a disk with --scratch")
        return
    needed = most.file_bytes if setting.data is None else min(most.file_bytes, 64 << 20)
    pictures = most.pictures if setting.data is None else 0
    free = shutil.disk_usage(setting.scratch).free
    if free < 2 * (needed + pictures * PICTURE_BYTES):
        yield from _gaps(
            unmeasured, f"only {fmt.bytes_(free)} are free in {place.words}", "name another folder with --scratch"
        )
        return
    file = setting.scratch / "row"
    written = write_file(file, most_bytes=needed, seconds=most.seconds)
    hint = f"{fmt.bytes_(written.read_bytes)} of a checkpoint to {place.words}, until it is on the disk: {place.advice}"
    yield judged("disk.write_mb_per_s", written.mb_per_s, "MB/s", ROW_BAND, needs_cores=True, hint=hint)
    took = sync_seconds(setting.scratch / "sync", 20, seconds=most.seconds)
    hint = (
        f"a small write to {place.words} takes that long until it is on the disk: checkpoints and databases wait for it"
    )
    yield judged("disk.sync_ms", 1e3 * statistics.median(took), "ms", SYNC_BAND, needs_cores=True, hint=hint)
    if setting.data is None:
        yield from _row(file, trial)
        names = [setting.scratch / f"{number:05}" for number in range(pictures)]
        there = write_many(names, PICTURE_BYTES, seconds=most.seconds)
        yield from _pictures(there, PICTURE_BYTES, trial)


def _row(file: Path, trial: DiskTrial) -> Iterator[Item]:
    place, most = trial.place, trial.most
    way = cold_way(file)
    one, others = _timed(trial, lambda: read_in_a_row(file, way=way, seconds=most.seconds, most_bytes=most.read_bytes))
    hint = f"{place.words}, {_how(one)}: {place.advice}"
    found = judged(
        "disk.sequential_mb_per_s",
        one.mb_per_s,
        "MB/s",
        ROW_BAND,
        remedy=place.remedy,
        needs_cores=True,
        hint=hint,
        why=f"reads {fmt.number(one.mb_per_s)} MB/s sequentially from {hint}",
    )
    yield _proved(found, one, others, place)
    yield fact("disk.sequential_warm_mb_per_s", read_warm(file).mb_per_s, "MB/s", hint="from the page cache")


def _pictures(paths: list[Path], mean_bytes: float, trial: DiskTrial) -> Iterator[Item]:
    place, most = trial.place, trial.most
    threads = max(4, min(16, 2 * round(cores_allowed(trial.watch))))
    way = cold_way(paths[0])
    cold, others = _timed(trial, lambda: read_many(paths, way=way, threads=threads, seconds=most.seconds))
    if not cold.files:
        yield TriageGap("disk.small_reads_per_s", f"none of {len(paths)} files could be read", "see their permissions")
        return
    expected = _KEPT * min(VOLUME_READS_PER_S, VOLUME_MB_PER_S * 1e6 / mean_bytes)
    size = fmt.bytes_(mean_bytes)
    hint = f"{place.words}, whole files of {size} by {threads} readers, {_how(cold)}: {place.advice}"
    found = judged(
        "disk.small_reads_per_s",
        cold.files_per_s,
        "files/s",
        Band(expected, None, f"{_VOLUME}, in files of {size}"),
        remedy=place.remedy,
        needs_cores=True,
        hint=hint,
        why=f"reads {fmt.number(cold.files_per_s)} small files/s from {hint}",
    )
    yield _proved(found, cold, others, place)
    filled = read_many(paths, way="warm", threads=threads, seconds=most.seconds)
    if filled.files < len(paths):
        reason = f"{len(paths)} files could not be read into the page cache in {most.seconds:g} s"
        yield TriageGap("disk.small_reads_warm_per_s", reason, "the disk is too slow for it")
        return
    warm = read_many(paths, way="warm", threads=threads, seconds=min(1.0, most.seconds))
    yield fact("disk.small_reads_warm_per_s", warm.files_per_s, "files/s", hint="the same files from the page cache")


def _timed(trial: DiskTrial, read: Callable[[], Pass]) -> tuple[Pass, str]:
    """The pass, and what made it slower than the disk is, in words; empty: nothing worth a word."""
    before = trial.watch.now()
    one = read()
    stretch = trial.watch.since(before)
    held = stretch.throttled_share
    if held is not None and held > QUOTA.thresholds["periods"].value:
        return (
            one,
            f"a CPU quota throttled triage in {fmt.share(held)} of its periods meanwhile: measure again without it",
        )
    disk = trial.place.mount.disk if trial.place.mount else None
    if disk is None:
        return one, ""
    beside = stretch.disk_bytes([disk]) - one.read_bytes
    resting = trial.idle.disk_bytes([disk]) / 1e6 / trial.idle.seconds
    if resting >= _OTHERS_IDLE_MB_PER_S:
        return one, f"others moved {fmt.number(resting)} MB/s on {disk} while we were idle{_MEASURE_AGAIN}"
    if beside >= _OTHERS_SHARE * max(one.read_bytes, 1) and beside / 1e6 / stretch.seconds >= _OTHERS_IDLE_MB_PER_S:
        return (
            one,
            f"others moved {fmt.bytes_(beside)} on {disk} besides our {fmt.bytes_(one.read_bytes)}{_MEASURE_AGAIN}",
        )
    return one, ""


def _proved(found: Found, one: Pass, others: str, place: Place) -> Found:
    """Marks results as unproved: slow ones while others used the disk, fast ones that came from the page cache."""
    if found.check.state != "ok":
        return unproved(found, others) if others else found
    if one.way != "around" and (one.cached_share is None or one.cached_share > _CACHED_SHARE):
        return unproved(found, f"{_how(one)}: this says little about the disk")
    if place.caches:
        return unproved(found, f"{place.words} may answer from a cache of its own: this says little about the disk")
    return replace(found, check=replace(found.check, hint=others)) if others else found


def _how(one: Pass) -> str:
    if one.way == "around":
        return "bypassing the page cache"
    if one.cached_share is None:
        return "the page cache could not be bypassed: an unknown share came from it"
    return f"{fmt.share(one.cached_share)} of it from the page cache"
