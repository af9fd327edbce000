"""Input faults caused by storage."""

from __future__ import annotations

from samples.faults.fixtures import MemoryLimit, SlowDisk, WarmLibraries
from samples.faults.scenario import Fixture, Job, Remedy, Scenario, Strength, Truth

QUICK = 400_000_000  # bytes per second: no limit for these jobs
PAIR = ("--workers=2", "--persistent")
COMPUTING = ("--workers=1", "--persistent", "--transform=5")
AMPLE = 1600  # megabytes: room for the job and everything it reads


def reading(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/loading.py", ("--files={disk}", "--width=48", *arguments), ranks=ranks)


def small(*arguments: str) -> Job:
    """A net that computes about 16 ms a step."""
    return Job("faults/jobs/loading.py", ("--files={disk}", *arguments))


def detail(
    name: str,
    rule: str,
    job: Job,
    disk: SlowDisk,
    *,
    strength: Strength = "clear",
    fixed: SlowDisk | None = None,
    variant: bool = False,
) -> Scenario:
    """Returns a scenario of slow storage: DAT002 is the root, and `rule` is reported with it and says why."""
    below = strength == "just below"
    return Scenario(
        name=name,
        family="storage",
        job=job,
        fixtures=(disk,),
        truth=Truth(never=("DAT002", rule)) if below else Truth(roots=("DAT002",), noted=(rule,)),
        strength=strength,
        remedy=Remedy(fixtures=(fixed,)) if fixed else None,
        variant=variant,
    )


def too_slow(
    name: str,
    job: Job,
    bytes_per_s: int,
    *,
    files: int,
    strength: Strength = "clear",
    note: str = "",
    variant: bool = False,
) -> Scenario:
    return Scenario(
        name=name,
        family="storage",
        job=job,
        fixtures=(SlowDisk(bytes_per_s, files=files),),
        truth=Truth(roots=("DAT002",)),
        strength=strength,
        remedy=Remedy(fixtures=(SlowDisk(QUICK, files=files),)),
        note=note,
        variant=variant,
    )


def served(*arguments: str) -> Job:
    """A job that fetches each picture by HTTP."""
    return Job("faults/jobs/loading.py", ("--width=48", "--persistent", *arguments))


THROTTLED = (
    detail(
        "limit-on-the-number-of-reads",
        "DSK002",
        reading("--steps=100", "--workers=2", "--persistent"),
        SlowDisk(0, files=1700, reads_per_s=250),
        fixed=SlowDisk(QUICK, files=1700),
        variant=True,
    ),
    detail(
        "limit-on-the-number-of-reads-a-little",
        "DSK002",
        reading("--steps=200", "--workers=2", "--persistent"),
        SlowDisk(0, files=3300, reads_per_s=350),
        strength="just above",
        fixed=SlowDisk(QUICK, files=3300),
        variant=True,
    ),
    detail(
        "number-of-reads-that-suffices",
        "DSK002",
        reading("--steps=200", "--workers=2", "--persistent"),
        SlowDisk(0, files=3300, reads_per_s=1000),
        strength="just below",
        variant=True,
    ),
    detail(
        "volume-held-back-by-its-provider",
        "DSK002",
        small("--steps=250", "--workers=2", "--persistent"),
        SlowDisk(25_000_000, files=4100, behind=True),
        fixed=SlowDisk(QUICK, files=4100, behind=True),
    ),
    detail(
        "volume-held-back-a-little",
        "DSK002",
        small("--steps=500", "--workers=2", "--persistent"),
        SlowDisk(50_000_000, files=8100, behind=True),
        strength="just above",
        fixed=SlowDisk(QUICK, files=8100, behind=True),
    ),
    detail(
        "volume-that-suffices",
        "DSK002",
        small("--steps=500", "--workers=2", "--persistent"),
        SlowDisk(125_000_000, files=8100, behind=True),
        strength="just below",
    ),
)


def shared(
    name: str, disk: SlowDisk, *, strength: Strength = "clear", fixed: SlowDisk | None = None, steps: int = 100
) -> Scenario:
    """A disk that other processes also read."""
    below = strength == "just below"
    return Scenario(
        name=name,
        family="storage",
        job=reading(f"--steps={steps}", "--workers=2", "--persistent"),
        fixtures=(disk,),
        truth=Truth(never=("DAT002", "DSK001", "DSK002")) if below else Truth(roots=("DSK001",)),
        strength=strength,
        remedy=Remedy(fixtures=(fixed,)) if fixed else None,
    )


DISK = 200_000_000  # bytes per second
SHARED = (
    shared(
        "neighbours-on-the-disk",
        SlowDisk(DISK, files=1700, neighbours=2),
        fixed=SlowDisk(DISK, files=1700, behind=True),
    ),
    shared(
        "a-neighbour-on-the-disk",
        SlowDisk(DISK, files=2500, neighbours=1),
        strength="just above",
        steps=150,
        fixed=SlowDisk(DISK, files=2500, behind=True),
    ),
    shared(
        "a-neighbour-that-reads-now-and-then",
        SlowDisk(DISK, files=2500, neighbours=1, pause_ms=40),
        strength="just below",
        steps=150,
    ),
)


def cached(name: str, megabytes: int, *, strength: Strength = "clear", note: str = "") -> Scenario:
    """Two epochs of 360 MB, in a job that takes about 450 MB without its files.

    In its second epoch, a plain reader reads 88 % from the disk again with 180 MB of room, 57 % with 280 MB, 23 % with 340 MB.
    """

    def around(memory: int) -> tuple[Fixture, ...]:
        return (SlowDisk(20_000_000, files=6000), WarmLibraries(), MemoryLimit(memory))

    below = strength == "just below"
    return Scenario(
        name=name,
        family="storage",
        job=small("--steps=750", "--workers=1", "--persistent"),
        fixtures=around(megabytes),
        truth=Truth(never=("DAT010",), also=("DAT002", "DAT007")) if below else Truth(roots=("DAT010",)),
        strength=strength,
        remedy=None if below else Remedy(fixtures=around(AMPLE)),
        note=note,
        late="" if below else "the first epoch reads every file once, whatever the limit: only the second shows it",
    )


CACHED = (
    cached("memory-limit-below-the-data-set", 600),
    cached("memory-limit-a-little-below-the-data-set", 730, strength="just above"),
    cached(
        "memory-limit-that-nearly-holds-the-data-set",
        790,
        strength="just below",
        note="the first epoch has to read everything, and may be called slow; in the second the loop waits longer for its worker (2.7 ms a "
        "step) than it takes to make the batches itself (1.0 ms)",
    ),
)


SCENARIOS = (
    *THROTTLED,
    *SHARED,
    *CACHED,
    Scenario(
        name="throttled-disk",
        family="storage",
        job=Job("faults/jobs/loading.py", ("--files={disk}", "--steps=45", "--batch=4", "--workers=1"), ranks=2),
        fixtures=(SlowDisk(2_000_000, files=600),),
        truth=Truth(roots=("DAT002",)),
        strength="clear",
        fast=True,
    ),
    too_slow("disk-at-half-the-speed-it-takes", reading("--steps=120", *PAIR), 14_000_000, files=2000),
    too_slow("disk-a-little-too-slow", reading("--steps=150", *PAIR), 23_000_000, files=2500, strength="just above"),
    too_slow(
        "disk-too-slow-for-a-worker-that-computes",
        small("--steps=60", *COMPUTING),
        4_000_000,
        files=1100,
        note="a faster disk leaves the worker 87 ms of computing a batch; the step beside it takes 18",
        variant=True,
    ),
    too_slow(
        "disk-too-slow-now-and-then-for-a-worker-that-computes",
        small("--steps=90", *COMPUTING),
        7_000_000,
        files=1600,
        strength="just above",
        note="what the limit allows is saved up while the worker computes: it is blocked for less than half of a batch",
        variant=True,
    ),
    Scenario(
        name="disk-that-suffices",
        family="storage",
        job=reading("--steps=200", "--workers=2", "--persistent"),
        fixtures=(SlowDisk(60_000_000, files=3300),),
        truth=Truth(never=("DAT001", "DAT002", "DAT003", "DAT004")),
        strength="just below",
    ),
    Scenario(
        name="throttled-disk-in-process",
        family="storage",
        job=reading("--steps=60", "--batch=8"),
        fixtures=(SlowDisk(5_000_000, files=600),),
        truth=Truth(roots=("DAT002", "DAT003")),
        strength="clear",
        note="the disk is slow, and a worker would hide a part of it: both advices are true",
    ),
    Scenario(
        name="samples-of-a-server-at-its-limit",
        family="storage",
        job=served("--server=4", "--one-by-one", "--workers=2", "--steps=120"),
        truth=Truth(roots=("DAT004",), says="if the server can answer more at once"),
        strength="clear",
        remedy=Remedy(job=served("--server=4", "--one-by-one", "--workers=4", "--steps=120")),
        note="it answers one by one: more workers wait for it longer, which nobody can see from here",
        variant=True,
    ),
    Scenario(
        name="samples-of-a-server-that-answers-all",
        family="storage",
        job=served("--server=8", "--workers=2", "--steps=150"),
        truth=Truth(roots=("DAT004",), says="if the server can answer more at once"),
        strength="clear",
        remedy=Remedy(job=served("--server=8", "--workers=3", "--steps=150")),
        variant=True,
    ),
)
