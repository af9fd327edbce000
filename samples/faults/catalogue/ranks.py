"""One rank holds up the others: by its data, its computing, or its CPU quota; or ranks or workers train on the same samples."""

from __future__ import annotations

from typing import Any

from samples.faults.fixtures import CpuQuota, SlowDisk
from samples.faults.scenario import Fixture, Job, Remedy, Scenario, fault, sound_twin

straggler = Job("faults/jobs/ranks/straggler.py", ranks=2, start="one by one")
shares = Job("faults/jobs/ranks/shares.py", start="one by one")
texts = Job("faults/jobs/compute/texts.py", ("--steps=150",), ranks=2, start="one by one")
# Four ranks that mostly sleep, so that two cores are enough.
four = Job("faults/jobs/ranks/straggler.py", ("--slow-rank=2", "--batch=8", "--width=8"), ranks=4)


def of_one(name: str, rule: str, job: Job, *fixtures: Fixture, rank: int = 1, **more: Any) -> Scenario:
    """A clear fault of one rank: the wait of the others must also be reported, as a consequence."""
    return fault(name, rule, job, *fixtures, ranks=(rank,), noted=("COM002",), **more)


ALIKE = ("--width=48", "--steps=120")
STREAM = ("--stream", "--workers=2", "--transform=0.5")
LOADER = "loader = DataLoader("


def in_turns(slow_ms: int) -> Job:
    """Samples that are larger for each rank in turn: each rank waits for the other equally often."""
    return straggler(f"--slow-compute={slow_ms}", "--turns=1", *ALIKE)


# Scenarios with the same fixed job are adjacent, so that it runs once for all of them.
SCENARIOS = (
    of_one(
        "slow-data-on-one-rank",
        "DAT008",
        straggler("--slow-data=3", "--steps=100"),
        fixed=straggler("--steps=100"),
        suite="fast",
    ),
    of_one(
        "slow-computing-on-one-rank",
        "CMP007",
        straggler("--slow-compute=40", "--steps=100"),
        fixed=straggler("--steps=100"),
        suite="fast",
    ),
    of_one(
        "quota-on-one-rank",
        "CPU001",
        straggler("--group={group}", "--steps=100"),
        CpuQuota(0.35, everybody=False),
        remedy=Remedy(job=straggler("--steps=100"), fixtures=()),
        suite="fast",
    ),
    of_one(
        "slow-data-on-one-rank-of-four",
        "DAT008",
        four("--slow-data=20", "--steps=60"),
        rank=2,
        fixed=four("--steps=60"),
        suite="all",
    ),
    of_one(
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
        ranks=(1,),
        fixed=straggler("--width=48", "--steps=120"),
        strength="just above",
    ),
    fault(
        "slow-computing-on-one-rank-a-little",
        "CMP007",
        straggler("--slow-compute=14", "--width=48", "--steps=120"),
        ranks=(1,),
        fixed=straggler("--width=48", "--steps=120"),
        strength="just above",
    ),
    fault("ranks-that-take-turns", "COM002", in_turns(40), ranks=(), fixed=straggler(*ALIKE)),
    fault(
        "ranks-that-take-turns-a-little",
        "COM002",
        in_turns(18),
        strength="just above",
        ranks=(),
        fixed=straggler(*ALIKE),
        suite="all",
    ),
    fault("ranks-that-take-turns-hardly", ("COM002", "CMP007"), in_turns(4), strength="just below", suite="all"),
    of_one(
        "slow-data-on-one-rank-of-a-resnet",
        "DAT008",
        straggler("--slow-data=5", "--resnet", "--steps=60"),
        fixed=straggler("--resnet", "--steps=60"),
        note="the other rank waits in its forward: batch norm's buffers are sent there",
        suite="all",
    ),
    of_one(
        "work-of-rank-0-between-steps",
        "LOP004",
        straggler("--slow-between=80", "--slow-rank=0", "--resnet", "--steps=60"),
        rank=0,
        fixed=straggler("--resnet", "--steps=60"),
        note="the other rank waits in its forward: batch norm's buffers are sent there",
    ),
    fault("quota-on-all", "CPU001", straggler("--width=48", "--steps=120"), CpuQuota(1.0), remedy=Remedy(fixtures=())),
    fault(
        "quota-on-all-a-little",
        "CPU001",
        straggler("--width=48", "--steps=120"),
        CpuQuota(1.7),
        remedy=Remedy(fixtures=()),
        strength="just above",
    ),
    fault(
        "slow-data-on-one-rank-hardly",
        "DAT008",
        straggler("--slow-data=0.03", "--width=48", "--steps=150"),
        strength="just below",
    ),
    of_one(
        "slow-data-on-the-first-rank-with-workers",
        "DAT008",
        straggler("--slow-data=6", "--slow-rank=0", "--workers=1", "--steps=100"),
        rank=0,
        fixed=straggler("--workers=1", "--steps=100"),
        suite="all",
    ),
    fault(
        "slow-computing-on-one-rank-hardly",
        "CMP007",
        straggler("--slow-compute=2", "--width=48", "--steps=150"),
        strength="just below",
    ),
    of_one(
        "larger-batches-on-one-rank",
        "CMP007",
        straggler("--larger=12", "--width=48", "--steps=120"),
        note="its share of the data is larger: it computes more",
    ),
    fault(
        "slow-computing-from-some-step-on",
        "CMP007",
        straggler("--slow-compute=40", "--from-step=120", "--steps=270"),
        ranks=(1,),
        onset_step=120,
        also=("RUN003",),
    ),
    fault(
        "quota-on-one-rank-from-some-step-on",
        "CPU001",
        straggler("--group={group}", "--from-step=130", "--steps=280"),
        CpuQuota(0.4, everybody=False),
        ranks=(1,),
        onset_step=130,
        also=("RUN003",),
    ),
    fault(
        "quota-that-suffices",
        "CPU001",
        Job("faults/jobs/input/loading.py", ("--width=48", "--steps=200")),
        CpuQuota(1.5),
        strength="just below",
        note="one thread never needs more than a core, and what loads beside it very little",
    ),
    of_one(
        "longer-texts-on-one-rank",
        "CMP007",
        texts("--shortest=20", "--longest=300", "--shares=sorted"),
        fixed="--shares=dealt",
        says="its batches are larger",
    ),
    fault(
        "longer-texts-on-ranks-in-turn",
        "COM002",
        texts("--shortest=20", "--longest=400", "--shares=shuffled"),
        line="loader = DataLoader(",
        says="uneven batch sizes",
        fixed="--shares=dealt",
    ),
    fault(
        "longer-texts-on-one-rank-a-little",
        "CMP007",
        texts("--shortest=100", "--longest=180", "--shares=sorted"),
        ranks=(1,),
        fixed="--shares=dealt",
        strength="just above",
        says="its batches are larger",
    ),
    fault(
        "longer-texts-on-one-rank-hardly",
        "CMP007",
        texts("--shortest=140", "--longest=160", "--shares=sorted"),
        strength="just below",
    ),
    fault("same-batches-on-two-ranks", "DAT021", shares(ranks=2), line=LOADER, fixed="--divided"),
    sound_twin("batches-of-their-own-on-two-ranks", "DAT021", shares("--divided", ranks=2), note="DistributedSampler"),
    fault("same-stream-from-two-workers", "DAT021", shares(*STREAM), line=LOADER, fixed="--divided"),
    sound_twin(
        "stream-divided-among-two-workers",
        "DAT021",
        shares(*STREAM, "--divided"),
        note="a part of the stream for each worker",
    ),
)
