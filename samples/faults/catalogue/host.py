"""Faults of the host: neighbours, too many threads, garbage collection, memory leaks."""

from __future__ import annotations

from samples.faults.fixtures import Burners
from samples.faults.scenario import Job, Remedy, Scenario, Truth


def vit(*arguments: str) -> Job:
    return Job("faults/jobs/vit_spawn.py", arguments)


def between(*arguments: str, ranks: int = 0) -> Job:
    return Job(
        "faults/jobs/between_steps.py", ("--out={out}", "--width=48", *arguments), ranks=ranks, start="one by one"
    )


def beside(*arguments: str) -> Job:
    return Job("faults/jobs/helpers.py", ("--steps=150", *arguments), ranks=2, environment={"OMP_NUM_THREADS": "1"})


SCENARIOS = (
    Scenario(
        name="neighbours-on-every-core",
        family="host",
        job=Job("faults/jobs/straggler.py", ("--width=48", "--steps=120"), ranks=2),
        fixtures=(Burners(2),),
        truth=Truth(roots=("CPU003",)),
        strength="clear",
        remedy=Remedy(fixtures=()),
        variant=True,
    ),
    Scenario(
        name="a-neighbour-on-one-core",
        family="host",
        job=vit("--steps=120"),
        fixtures=(Burners(1),),
        truth=Truth(roots=("CPU003",)),
        strength="just above",
        remedy=Remedy(fixtures=()),
        note="two ranks and one neighbour on two cores",
    ),
    Scenario(
        name="a-helper-of-its-own",
        family="host",
        job=beside("--share=1"),
        truth=Truth(roots=("CPU003",), says="started itself"),
        strength="clear",
        remedy=Remedy(job=beside()),
        note="two ranks on two cores, and a process of the job's own that computes",
    ),
    Scenario(
        name="a-helper-that-does-little",
        family="host",
        job=beside("--share=0.12"),
        truth=Truth(never=("CPU003",)),
        strength="just below",
    ),
    Scenario(
        name="too-many-threads",
        family="host",
        job=vit("--steps=70", "--threads=8"),
        truth=Truth(roots=("CPU005",)),
        strength="clear",
        remedy=Remedy(job=vit("--steps=70", "--threads=1")),
    ),
    Scenario(
        name="too-many-threads-one-rank",
        family="host",
        job=Job("faults/jobs/cifar.py", ("--model=resnet18", "--steps=60", "--threads=16")),
        truth=Truth(roots=("CPU005",)),
        strength="clear",
        remedy=Remedy(job=Job("faults/jobs/cifar.py", ("--model=resnet18", "--steps=60", "--threads=2"))),
        variant=True,
    ),
    Scenario(
        name="three-threads-on-two-cores",
        family="host",
        job=Job("faults/jobs/cifar.py", ("--model=resnet18", "--steps=80", "--threads=3")),
        truth=Truth(roots=("CPU005",)),
        strength="just above",
        remedy=Remedy(job=Job("faults/jobs/cifar.py", ("--model=resnet18", "--steps=80", "--threads=2"))),
    ),
    Scenario(
        name="two-threads-on-two-cores",
        family="host",
        job=Job("faults/jobs/cifar.py", ("--model=resnet18", "--steps=80", "--threads=2")),
        truth=Truth(never=("CPU005",)),
        strength="just below",
    ),
    Scenario(
        name="garbage-collection",
        family="host",
        job=between("--records=300000", "--collect-every=1", "--steps=40"),
        truth=Truth(roots=("CPU006",)),
        strength="clear",
        remedy=Remedy(job=between("--records=300000", "--collect-every=1", "--steps=40", "--freeze")),
    ),
    Scenario(
        name="garbage-collection-on-two-ranks",
        family="host",
        job=between("--records=200000", "--collect-every=8", "--steps=120", ranks=2),
        truth=Truth(roots=("CPU006",)),
        strength="just above",
        remedy=Remedy(job=between("--records=200000", "--collect-every=8", "--steps=120", "--freeze", ranks=2)),
    ),
    Scenario(
        name="garbage-collection-on-one-rank",
        family="host",
        job=between("--records=200000", "--collect-every=1", "--collect-rank=1", "--steps=45", ranks=2),
        truth=Truth(roots=("CPU006",), ranks=(1,), noted=("COM002",)),
        strength="clear",
        remedy=Remedy(
            job=between("--records=200000", "--collect-every=1", "--collect-rank=1", "--steps=45", "--freeze", ranks=2)
        ),
        note="the other rank waits for it",
        variant=True,
    ),
    Scenario(
        name="garbage-collection-seldom",
        family="host",
        job=between("--records=1000", "--collect-every=180", "--steps=300"),
        truth=Truth(never=("CPU006", "LOP004")),
        strength="just below",
    ),
    Scenario(
        name="memory-that-creeps",
        family="host",
        job=between("--retain=2048", "--steps=900"),
        truth=Truth(roots=("MEM002",)),
        strength="clear",
        late="in less than half a minute growth cannot be told from a warm-up",
    ),
    Scenario(
        name="memory-that-creeps-a-little",
        family="host",
        job=between("--retain=150", "--steps=900"),
        truth=Truth(roots=("MEM002",)),
        strength="just above",
        late="in less than half a minute growth cannot be told from a warm-up",
    ),
    Scenario(
        name="cache-in-the-workers",
        family="host",
        job=Job(
            "faults/jobs/loading.py",
            ("--width=48", "--keep=20", "--pictures=480", "--steps=850", "--workers=1", "--persistent"),
        ),
        truth=Truth(roots=("MEM002",), says="the loader workers of rank 0"),
        strength="clear",
        late="in less than half a minute growth cannot be told from a warm-up",
        variant=True,
    ),
    Scenario(
        name="memory-that-hardly-creeps",
        family="host",
        job=between("--retain=16", "--steps=300"),
        truth=Truth(never=("MEM002",)),
        strength="just below",
    ),
)
