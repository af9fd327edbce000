"""What jobs on a GPU do to themselves. No machine with one has run them yet: what is just above a threshold there is not known."""

from __future__ import annotations

from collections.abc import Mapping

from samples.faults.fixtures import NvidiaGpu
from samples.faults.scenario import Job, Remedy, Scenario, Strength, Truth

SOUND = ("--precision=amp", "--channels-last", "--tuned", "--batch-size=128", "--steps=300")


def job(*arguments: str, environment: Mapping[str, str] | None = None) -> Job:
    """Later arguments win."""
    return Job("faults/jobs/gpu.py", (*SOUND, *arguments), environment=environment or {})


def habit(
    name: str,
    rule: str,
    bad: Job,
    *,
    strength: Strength = "clear",
    also: tuple[str, ...] = (),
    fixed: Job | None = None,
) -> Scenario:
    """What a habit costs depends on the GPU: it is told, be it the verdict or not."""
    below = strength == "just below"
    truth = Truth(never=(rule,), silent=(rule,)) if below else Truth(also=(rule, *also), noted=(rule,))
    remedy = None if below else Remedy(job=fixed or job())
    return Scenario(
        name=name, family="gpu", job=bad, truth=truth, strength=strength, fixtures=(NvidiaGpu(),), remedy=remedy
    )


SCENARIOS = (
    Scenario(
        name="healthy-gpu",
        family="gpu",
        job=job(),
        truth=Truth(),
        strength="none",
        fixtures=(NvidiaGpu(),),
    ),
    habit(
        "gpu-in-full-precision",
        "CMP001",
        Job("faults/jobs/gpu.py", ("--precision=fp32", "--batch-size=128", "--steps=200")),
        also=("CMP002", "CMP009"),
    ),
    habit(
        "gpu-channels-first",
        "CMP002",
        Job("faults/jobs/gpu.py", ("--precision=amp", "--tuned", "--batch-size=128", "--steps=300")),
    ),
    habit("gpu-waits-for-each-loss", "CMP004", job("--habit=item")),
    habit("gpu-waits-for-some-losses", "CMP004", job("--habit=item", "--every=50"), strength="just below"),
    habit("gpu-copies-from-pageable-memory", "H2D001", job("--habit=pageable"), also=("H2D002",)),
    habit("gpu-copies-that-block", "H2D002", job("--habit=blocking")),
    habit("gpu-in-small-batches", "CMP003", job("--batch-size=8"), also=("CMP005",)),
    habit("gpu-launches-that-block", "CMP010", job(environment={"CUDA_LAUNCH_BLOCKING": "1"}), also=("CMP003",)),
    habit("gpu-memory-creeps", "GPU004", job("--habit=creep", "--steps=400")),
    habit(
        "gpu-memory-creeps-a-little",
        "GPU004",
        job("--habit=creep", "--every=100", "--steps=400"),
        strength="just below",
    ),
)
