"""Input faults caused by storage."""

from __future__ import annotations

from typing import Any

from samples.faults.fixtures import MemoryLimit, SlowDisk, WarmLibraries
from samples.faults.scenario import Fixture, Job, Remedy, Scenario, Strength, fault

loading = Job("faults/jobs/input/loading.py")
QUICK = 400_000_000  # bytes per second: no limit for these jobs
PAIR = ("--workers=2", "--persistent")
COMPUTING = ("--workers=1", "--persistent", "--transform=5")
AMPLE = 1600  # megabytes: enough for the job and everything it reads
reading = loading("--files={disk}", "--width=48")
small = loading("--files={disk}")  # a net that computes about 16 ms a step
served = loading("--width=48", "--persistent")  # a job that fetches each picture by HTTP


def quick(files: int) -> Remedy:
    return Remedy(fixtures=(SlowDisk(QUICK, files=files),))


def detail(name: str, rule: str, job: Job, disk: SlowDisk, *, strength: Strength = "clear", **more: Any) -> Scenario:
    """Returns a scenario of slow storage: DAT002 is the root, and `rule` is reported with it and says why."""
    rules = ("DAT002", rule) if strength == "just below" else "DAT002"
    return fault(name, rules, job, disk, strength=strength, noted=(rule,), **more)


def too_slow(name: str, job: Job, bytes_per_s: int, *, files: int, **more: Any) -> Scenario:
    return fault(name, "DAT002", job, SlowDisk(bytes_per_s, files=files), remedy=quick(files), **more)


THROTTLED = (
    detail(
        "limit-on-the-number-of-reads",
        "DSK002",
        reading("--steps=100", "--workers=2", "--persistent"),
        SlowDisk(0, files=1700, reads_per_s=250),
        remedy=quick(1700),
        suite="all",
    ),
    detail(
        "limit-on-the-number-of-reads-a-little",
        "DSK002",
        reading("--steps=200", "--workers=2", "--persistent"),
        SlowDisk(0, files=3300, reads_per_s=350),
        strength="just above",
        remedy=quick(3300),
        suite="all",
    ),
    detail(
        "number-of-reads-that-suffices",
        "DSK002",
        reading("--steps=200", "--workers=2", "--persistent"),
        SlowDisk(0, files=3300, reads_per_s=1000),
        strength="just below",
        suite="all",
    ),
    detail(
        "volume-held-back-by-its-provider",
        "DSK002",
        small("--steps=250", "--workers=2", "--persistent"),
        SlowDisk(25_000_000, files=4100, behind=True),
        remedy=Remedy(fixtures=(SlowDisk(QUICK, files=4100, behind=True),)),
    ),
    detail(
        "volume-held-back-a-little",
        "DSK002",
        small("--steps=500", "--workers=2", "--persistent"),
        SlowDisk(50_000_000, files=8100, behind=True),
        strength="just above",
        remedy=Remedy(fixtures=(SlowDisk(QUICK, files=8100, behind=True),)),
    ),
    detail(
        "volume-that-suffices",
        "DSK002",
        small("--steps=500", "--workers=2", "--persistent"),
        SlowDisk(125_000_000, files=8100, behind=True),
        strength="just below",
    ),
)


def shared(name: str, disk: SlowDisk, *, strength: Strength = "clear", steps: int = 100, **more: Any) -> Scenario:
    """A disk that other processes also read."""
    rules = ("DAT002", "DSK001", "DSK002") if strength == "just below" else "DSK001"
    return fault(name, rules, reading(f"--steps={steps}", *PAIR), disk, strength=strength, **more)


DISK = 200_000_000  # bytes per second
SHARED = (
    shared(
        "neighbours-on-the-disk",
        SlowDisk(DISK, files=1700, neighbours=2),
        remedy=Remedy(fixtures=(SlowDisk(DISK, files=1700, behind=True),)),
    ),
    shared(
        "a-neighbour-on-the-disk",
        SlowDisk(DISK, files=2500, neighbours=1),
        strength="just above",
        steps=150,
        remedy=Remedy(fixtures=(SlowDisk(DISK, files=2500, behind=True),)),
    ),
    shared(
        "a-neighbour-that-reads-now-and-then",
        SlowDisk(DISK, files=2500, neighbours=1, pause_ms=40),
        strength="just below",
        steps=150,
    ),
)


def around(megabytes: int) -> tuple[Fixture, ...]:
    return (SlowDisk(20_000_000, files=6000), WarmLibraries(), MemoryLimit(megabytes))


def cached(name: str, megabytes: int, **more: Any) -> Scenario:
    """Two epochs of 360 MB, in a job that takes about 450 MB without its files.

    In its second epoch, a plain reader reads 88 % from the disk again with 180 MB left, 57 % with 280 MB, 23 % with 340 MB.
    """
    return fault(name, "DAT010", small("--steps=750", "--workers=1", "--persistent"), *around(megabytes), **more)


ROOMY = Remedy(fixtures=around(AMPLE))
LATE = "the first epoch reads every file once, whatever the limit: only the second shows it"
CACHED = (
    cached("memory-limit-below-the-data-set", 600, remedy=ROOMY, late=LATE),
    cached("memory-limit-a-little-below-the-data-set", 730, strength="just above", remedy=ROOMY, late=LATE),
    cached(
        "memory-limit-that-nearly-holds-the-data-set",
        790,
        strength="just below",
        also=("DAT002", "DAT007"),
        note="the first epoch has to read everything, and may be called slow; in the second the loop waits longer for its worker (2.7 ms a "
        "step) than it takes to make the batches itself (1.0 ms)",
    ),
)


SCENARIOS = (
    *THROTTLED,
    *SHARED,
    *CACHED,
    fault(
        "throttled-disk",
        "DAT002",
        loading("--files={disk}", "--steps=45", "--batch=4", "--workers=1", ranks=2),
        SlowDisk(2_000_000, files=600),
        suite="fast",
    ),
    too_slow("disk-at-half-the-speed-it-takes", reading("--steps=120", *PAIR), 14_000_000, files=2000),
    too_slow("disk-a-little-too-slow", reading("--steps=150", *PAIR), 19_000_000, files=2500, strength="just above"),
    too_slow(
        "disk-too-slow-for-a-worker-that-computes",
        small("--steps=60", *COMPUTING),
        4_000_000,
        files=1100,
        note="a faster disk leaves the worker 87 ms of computing a batch; the step beside it takes 18",
        suite="all",
    ),
    too_slow(
        "disk-too-slow-now-and-then-for-a-worker-that-computes",
        small("--steps=90", *COMPUTING),
        7_000_000,
        files=1600,
        strength="just above",
        note="what the limit allows is saved up while the worker computes: it is blocked for less than half of a batch",
        suite="all",
    ),
    fault(
        "disk-that-suffices",
        ("DAT001", "DAT002", "DAT003", "DAT004"),
        reading("--steps=200", "--workers=2", "--persistent"),
        SlowDisk(60_000_000, files=3300),
        strength="just below",
    ),
    fault(
        "throttled-disk-in-process",
        ("DAT002", "DAT003"),
        reading("--steps=60", "--batch=8"),
        SlowDisk(5_000_000, files=600),
        note="the disk is slow, and a worker would hide a part of it: both advices are true",
    ),
    fault(
        "samples-of-a-server-at-its-limit",
        "DAT004",
        served("--server=4", "--one-by-one", "--workers=2", "--steps=120"),
        says="if the server can handle more concurrent requests",
        fixed="--workers=4",
        suite="all",
        note="it answers one by one: more workers wait for it longer, which nobody can see from here",
    ),
    fault(
        "samples-of-a-server-that-answers-all",
        "DAT004",
        served("--server=8", "--workers=2", "--steps=150"),
        says="if the server can handle more concurrent requests",
        fixed="--workers=3",
        suite="all",
    ),
)
