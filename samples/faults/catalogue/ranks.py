"""One rank holds up the others: by its data, its computing, or its CPU quota; from the start, or from some step on."""

from __future__ import annotations

from samples.faults.fixtures import CpuQuota, SlowDisk
from samples.faults.scenario import Fixture, Job, Remedy, Scenario, Strength, Truth


def straggler(*arguments: str) -> Job:
    return Job("faults/jobs/straggler.py", arguments, ranks=2, start="one by one")


def texts(*arguments: str) -> Job:
    return Job("faults/jobs/texts.py", ("--steps=150", *arguments), ranks=2, start="one by one")


def four(*arguments: str) -> Job:
    """Four ranks that mostly sleep, so that two cores are enough."""
    return Job("faults/jobs/straggler.py", ("--slow-rank=2", "--batch=8", "--width=8", *arguments), ranks=4)


def fault(
    name: str,
    rule: str,
    job: Job,
    *fixtures: Fixture,
    strength: Strength = "clear",
    rank: int | None = 1,
    fixed: Job | None = None,
    unlimited: bool = False,
    also: tuple[str, ...] = (),
    onset_step: int = 0,
    says: str = "",
    fast: bool = False,
    note: str = "",
    variant: bool = False,
) -> Scenario:
    remedy = Remedy(job=fixed, fixtures=() if unlimited else None) if fixed or unlimited else None
    # the wait of the other ranks must also be reported, as a consequence
    noted = ("COM002",) if strength == "clear" and rank is not None and not onset_step else ()
    roots = Truth(roots=(rule,), ranks=None if rank is None else (rank,), also=also, noted=noted, says=says)
    return Scenario(
        name=name,
        family="ranks",
        job=job,
        fixtures=fixtures,
        truth=Truth(never=(rule,)) if strength == "just below" else roots,
        strength=strength,
        remedy=remedy,
        onset_step=onset_step,
        fast=fast,
        note=note,
        variant=variant,
    )


def in_turns(name: str, slow_ms: int, strength: Strength, *, variant: bool = False) -> Scenario:
    """Samples that are larger for each rank in turn: each rank waits for the other equally often."""
    even = straggler("--width=48", "--steps=120")
    return Scenario(
        name=name,
        family="ranks",
        job=straggler(f"--slow-compute={slow_ms}", "--turns=1", "--width=48", "--steps=120"),
        truth=Truth(never=("COM002", "CMP007")) if strength == "just below" else Truth(roots=("COM002",), ranks=()),
        strength=strength,
        remedy=None if strength == "just below" else Remedy(job=even),
        variant=variant,
    )


# Scenarios with the same fixed job are adjacent, so that it runs once for all of them.
SCENARIOS = (
    fault(
        "slow-data-on-one-rank",
        "DAT008",
        straggler("--slow-data=3", "--steps=100"),
        fixed=straggler("--steps=100"),
        fast=True,
    ),
    fault(
        "slow-computing-on-one-rank",
        "CMP007",
        straggler("--slow-compute=40", "--steps=100"),
        fixed=straggler("--steps=100"),
        fast=True,
    ),
    fault(
        "quota-on-one-rank",
        "CPU001",
        straggler("--group={group}", "--steps=100"),
        CpuQuota(0.35, everybody=False),
        fixed=straggler("--steps=100"),
        unlimited=True,
        fast=True,
    ),
    fault(
        "slow-data-on-one-rank-of-four",
        "DAT008",
        four("--slow-data=20", "--steps=60"),
        rank=2,
        fixed=four("--steps=60"),
        variant=True,
    ),
    fault(
        "data-of-one-rank-on-a-slow-disk",
        "DAT008",
        straggler("--files={out}", "--slow-files={disk}", "--steps=100"),
        SlowDisk(5_000_000, files=1700, file_bytes=20_000),
        fixed=straggler("--files={out}", "--steps=100"),
        says="disk (ext4 on loop",
    ),
    fault(
        "slow-data-on-one-rank-a-little",
        "DAT008",
        straggler("--slow-data=0.4", "--width=48", "--steps=120"),
        strength="just above",
        fixed=straggler("--width=48", "--steps=120"),
    ),
    fault(
        "slow-computing-on-one-rank-a-little",
        "CMP007",
        straggler("--slow-compute=14", "--width=48", "--steps=120"),
        strength="just above",
        fixed=straggler("--width=48", "--steps=120"),
    ),
    in_turns("ranks-that-take-turns", 40, "clear"),
    in_turns("ranks-that-take-turns-a-little", 18, "just above", variant=True),
    in_turns("ranks-that-take-turns-hardly", 4, "just below", variant=True),
    fault(
        "slow-data-on-one-rank-of-a-resnet",
        "DAT008",
        straggler("--slow-data=5", "--resnet", "--steps=60"),
        fixed=straggler("--resnet", "--steps=60"),
        note="the other rank waits in its forward: batch norm's buffers are sent there",
        variant=True,
    ),
    fault(
        "work-of-rank-0-between-steps",
        "LOP004",
        straggler("--slow-between=80", "--slow-rank=0", "--resnet", "--steps=60"),
        rank=0,
        fixed=straggler("--resnet", "--steps=60"),
        note="the other rank waits in its forward: batch norm's buffers are sent there",
    ),
    fault(
        "quota-on-all",
        "CPU001",
        straggler("--width=48", "--steps=120"),
        CpuQuota(1.0),
        rank=None,
        unlimited=True,
    ),
    fault(
        "quota-on-all-a-little",
        "CPU001",
        straggler("--width=48", "--steps=120"),
        CpuQuota(1.7),
        rank=None,
        strength="just above",
        unlimited=True,
    ),
    fault(
        "slow-data-on-one-rank-hardly",
        "DAT008",
        straggler("--slow-data=0.03", "--width=48", "--steps=150"),
        strength="just below",
    ),
    fault(
        "slow-data-on-the-first-rank-with-workers",
        "DAT008",
        straggler("--slow-data=6", "--slow-rank=0", "--workers=1", "--steps=100"),
        rank=0,
        fixed=straggler("--workers=1", "--steps=100"),
        variant=True,
    ),
    fault(
        "slow-computing-on-one-rank-hardly",
        "CMP007",
        straggler("--slow-compute=2", "--width=48", "--steps=150"),
        strength="just below",
    ),
    fault(
        "larger-batches-on-one-rank",
        "CMP007",
        straggler("--larger=12", "--width=48", "--steps=120"),
        note="its share of the data is larger: it computes more",
    ),
    fault(
        "slow-computing-from-some-step-on",
        "CMP007",
        straggler("--slow-compute=40", "--from-step=120", "--steps=270"),
        onset_step=120,
        also=("RUN003",),
    ),
    fault(
        "quota-on-one-rank-from-some-step-on",
        "CPU001",
        straggler("--group={group}", "--from-step=130", "--steps=280"),
        CpuQuota(0.4, everybody=False),
        onset_step=130,
        also=("RUN003",),
    ),
    fault(
        "quota-that-suffices",
        "CPU001",
        Job("faults/jobs/loading.py", ("--width=48", "--steps=200")),
        CpuQuota(1.5),
        strength="just below",
        note="one thread never needs more than a core, and what loads beside it very little",
    ),
    fault(
        "longer-texts-on-one-rank",
        "CMP007",
        texts("--shortest=20", "--longest=300", "--shares=sorted"),
        says="its batches are larger",
        fixed=texts("--shortest=20", "--longest=300", "--shares=dealt"),
    ),
    fault(
        "longer-texts-on-one-rank-a-little",
        "CMP007",
        texts("--shortest=100", "--longest=180", "--shares=sorted"),
        strength="just above",
        says="its batches are larger",
        fixed=texts("--shortest=100", "--longest=180", "--shares=dealt"),
    ),
    fault(
        "longer-texts-on-one-rank-hardly",
        "CMP007",
        texts("--shortest=140", "--longest=160", "--shares=sorted"),
        strength="just below",
    ),
)
