"""Faults of jobs on a GPU. They have not run on real hardware yet, so cases just above a threshold are unknown there."""

from __future__ import annotations

from collections.abc import Mapping

from samples.faults.catalogue.healthy import healthy
from samples.faults.fixtures import NvidiaGpu
from samples.faults.scenario import HEALTHY, Job, Remedy, Scenario, Strength, Truth

gpu = Job("faults/jobs/compute/gpu.py")
SOUND = ("--precision=amp", "--channels-last", "--tuned", "--batch-size=128", "--steps=300")
DEPENDS = "what the fault costs depends on the GPU: it is reported, as the verdict or beside it"


def job(*arguments: str, environment: Mapping[str, str] | None = None) -> Job:
    """Returns the sound job with these arguments added; later arguments override earlier ones."""
    return Job("faults/jobs/compute/gpu.py", (*SOUND, *arguments), environment=environment or {})


def seeded(
    name: str,
    rule: str,
    bad: Job,
    *,
    strength: Strength = "clear",
    also: tuple[str, ...] = (),
    fixed: Job | None = None,
) -> Scenario:
    below = strength == "just below"
    truth = Truth(never=(rule,), silent=(rule,)) if below else Truth(roots=(rule, *also, HEALTHY), noted=(rule,))
    return Scenario(
        name=name,
        job=bad,
        truth=truth,
        strength=strength,
        fixtures=(NvidiaGpu(),),
        remedy=None if below else Remedy(job=fixed or job()),
        note="" if below else DEPENDS,
    )


SCENARIOS = (
    healthy("healthy-gpu", job(), NvidiaGpu()),
    seeded(
        "gpu-in-full-precision",
        "CMP001",
        gpu("--precision=fp32", "--batch-size=128", "--steps=200"),
        also=("CMP002", "CMP009"),
    ),
    seeded("gpu-channels-first", "CMP002", gpu("--precision=amp", "--tuned", "--batch-size=128", "--steps=300")),
    seeded("gpu-waits-for-each-loss", "CMP004", job("--fault=item")),
    seeded("gpu-waits-for-some-losses", "CMP004", job("--fault=item", "--every=50"), strength="just below"),
    # as floats: on a GPU with a fast link, copying bytes takes less than 2 % of the step
    seeded(
        "gpu-copies-from-pageable-memory",
        "H2D001",
        job("--fault=pageable", "--floats"),
        also=("H2D002",),
        fixed=job("--floats"),
    ),
    seeded("gpu-copies-that-block", "H2D002", job("--fault=blocking", "--floats"), fixed=job("--floats")),
    seeded("gpu-pictures-as-floats", "H2D003", job("--converted", "--model=resnet18"), fixed=job("--model=resnet18")),
    seeded("gpu-pictures-as-floats-for-a-larger-net", "H2D003", job("--converted"), strength="just above"),
    seeded(
        "gpu-pictures-as-floats-for-a-slow-net",
        "H2D003",
        job("--converted", "--model=resnet152", "--precision=fp32", "--batch-size=64", "--steps=120"),
        strength="just below",
    ),
    seeded("gpu-in-small-batches", "CMP003", job("--batch-size=8"), also=("CMP005",)),
    seeded("gpu-launches-that-block", "CMP010", job(environment={"CUDA_LAUNCH_BLOCKING": "1"}), also=("CMP003",)),
    seeded("gpu-memory-creeps", "GPU004", job("--fault=creep", "--steps=400")),
    seeded(
        "gpu-memory-creeps-a-little",
        "GPU004",
        job("--fault=creep", "--every=100", "--steps=400"),
        strength="just below",
    ),
)
