"""Faults of the host: neighbours, too many threads, garbage collection, memory leaks."""

from __future__ import annotations

from samples.faults.fixtures import Burners
from samples.faults.scenario import Job, Remedy, fault

cifar = Job("faults/jobs/compute/cifar.py")
vit = Job("faults/jobs/compute/vit_spawn.py")
between = Job("faults/jobs/loop/between_steps.py", ("--out={out}", "--width=48"), start="one by one")
beside = Job("faults/jobs/host/helpers.py", ("--steps=150",), ranks=2, environment={"OMP_NUM_THREADS": "1"})
SCENARIOS = (
    fault(
        "neighbours-on-every-core",
        "CPU003",
        Job("faults/jobs/ranks/straggler.py", ("--width=48", "--steps=120"), ranks=2),
        Burners(2),
        remedy=Remedy(fixtures=()),
        suite="all",
    ),
    fault(
        "a-neighbour-on-one-core",
        "CPU003",
        vit("--steps=120"),
        Burners(1),
        strength="just above",
        remedy=Remedy(fixtures=()),
        note="two ranks and one neighbour on two cores",
    ),
    fault(
        "a-helper-of-its-own",
        "CPU003",
        beside("--share=1"),
        says="own helper processes",
        fixed=beside(),
        note="two ranks on two cores, and a process of the job's own that computes",
    ),
    fault("a-helper-that-does-little", "CPU003", beside("--share=0.12"), strength="just below"),
    fault("too-many-threads", "CPU005", vit("--steps=70", "--threads=8"), fixed="--threads=1"),
    fault(
        "too-many-threads-one-rank",
        "CPU005",
        cifar("--model=resnet18", "--steps=60", "--threads=16"),
        fixed=cifar("--model=resnet18", "--steps=60", "--threads=2"),
        suite="all",
    ),
    fault(
        "three-threads-on-two-cores",
        "CPU005",
        cifar("--model=resnet18", "--steps=80", "--threads=3"),
        strength="just above",
        fixed=cifar("--model=resnet18", "--steps=80", "--threads=2"),
    ),
    fault(
        "two-threads-on-two-cores",
        "CPU005",
        cifar("--model=resnet18", "--steps=80", "--threads=2"),
        strength="just below",
    ),
    fault(
        "garbage-collection",
        "CPU006",
        between("--records=300000", "--collect-every=1", "--steps=40"),
        fixed="--freeze",
    ),
    fault(
        "garbage-collection-on-two-ranks",
        "CPU006",
        between("--records=200000", "--collect-every=8", "--steps=120", ranks=2),
        strength="just above",
        fixed="--freeze",
    ),
    fault(
        "garbage-collection-on-one-rank",
        "CPU006",
        between("--records=200000", "--collect-every=1", "--collect-rank=1", "--steps=45", ranks=2),
        ranks=(1,),
        noted=("COM002",),
        fixed="--freeze",
        suite="all",
        note="the other rank waits for it",
    ),
    fault(
        "garbage-collection-seldom",
        ("CPU006", "LOP004"),
        between("--records=1000", "--collect-every=180", "--steps=300"),
        strength="just below",
    ),
    fault(
        "memory-that-creeps",
        "MEM002",
        between("--retain=2048", "--steps=900"),
        late="in less than half a minute growth cannot be told from a warm-up",
    ),
    fault(
        "memory-that-creeps-a-little",
        "MEM002",
        between("--retain=150", "--steps=900"),
        strength="just above",
        late="in less than half a minute growth cannot be told from a warm-up",
    ),
    fault(
        "cache-in-the-workers",
        "MEM002",
        Job(
            "faults/jobs/input/loading.py",
            ("--width=48", "--keep=20", "--pictures=480", "--steps=1700", "--workers=1", "--persistent"),
        ),
        says="the loader workers of rank 0",
        suite="all",
        late="in less than half a minute growth cannot be told from a warm-up",
    ),
    fault("memory-that-hardly-creeps", "MEM002", between("--retain=16", "--steps=300"), strength="just below"),
)
