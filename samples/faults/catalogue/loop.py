"""Faults between the steps of a loop, and before the update: checkpoints, logging, evaluation, waiting."""

from __future__ import annotations

from typing import Any

from samples.faults.scenario import Job, Scenario, Untouched, fault

SLICING = "faults/jobs/loop/slicing.py"
between = Job("faults/jobs/loop/between_steps.py", ("--out={out}",), ranks=2, start="one by one")
validating = Job("faults/jobs/ranks/validating.py", ranks=2, start="one by one")
before_update = Job("faults/jobs/loop/before_update.py", ("--out={out}",), start="one by one")
slicing = Job(SLICING, ("--out={out}",))
many_layers = Job(
    "faults/jobs/compute/perceptron.py", ("--batch=16", "--width=64", "--layers=60", "--steps=600", "--optimizer=AdamW")
)
averages = Job("faults/jobs/loop/averages.py")


def seeded(name: str, rule: str, job: Job, **more: Any) -> Scenario:
    """Forward and backward are untouched, except that backward on several ranks includes waiting for the others.

    Without a loader, everything after the update counts as forward.
    """
    forward: tuple[Untouched, ...] = () if job.script == SLICING else ("forward",)
    return fault(name, rule, job, untouched=forward if job.ranks else (*forward, "backward"), **more)


STEPS = ("--width=48", "--steps=150")
ALONE = ("--width=48", "--steps=280")  # for one rank, whose steps are shorter
MOBILE = ("--model=mobilenet_v3_small", "--size=64")
SCENARIOS = (
    fault(
        "anomaly-detection-left-on",
        "CMP010",
        between("--anomaly=100000", *ALONE[:1], "--steps=150", ranks=0),
        fixed=between(*ALONE[:1], "--steps=150", ranks=0),
    ),
    fault(
        "anomaly-detection-in-the-first-steps",
        "CMP010",
        between("--anomaly=30", *ALONE[:1], "--steps=150", ranks=0),
        strength="just below",
    ),
    fault(
        "allocations-traced",
        "CMP010",
        many_layers("--traced=10"),
        fixed=many_layers("--steps=2000"),
        noted=("CMP014",),
    ),
    seeded(
        "checkpoints",
        "LOP001",
        between("--checkpoint-every=5", "--steps=150"),
        line="torch.save(",
        fixed="--checkpoint-every=10",
        also=("LOP004",),
        suite="fast",
        note="emptying the old file and making the state pass outside torch.save: time between steps, on the same lines",
    ),
    seeded(
        "checkpoints-of-one-rank",
        "LOP001",
        between("--checkpoint-every=30", "--checkpoint-megabytes=60", *ALONE, ranks=0),
        strength="just above",
        line="torch.save(",
        fixed="--checkpoint-every=60",
    ),
    seeded(
        "checkpoints-seldom",
        "LOP001",
        between("--checkpoint-every=90", "--checkpoint-megabytes=8", "--width=48", "--steps=200"),
        strength="just below",
    ),
    seeded(
        "checkpoints-through-memory",
        "LOP001",
        between(
            "--checkpoint-every=5", "--checkpoint-megabytes=30", "--through-memory", "--steps=150", *ALONE[:1], ranks=0
        ),
        says="between_steps.py",
        fixed="--checkpoint-every=20",
        note="made in memory by torch.save, and written by the function that called it, as Lightning does",
    ),
    seeded(
        "logging-without-a-loader",
        "LOP002",
        slicing("--write-log=15", "--steps=250"),
        line="file.",
        says="write_log",
        fixed="--every=10",
        suite="all",
    ),
    seeded(
        "slow-rank-without-a-loader",
        "CMP007",
        slicing("--views=2", "--steps=200", ranks=2),
        ranks=(1,),
        fixed=slicing("--steps=200", ranks=2),
        suite="all",
    ),
    seeded("short-pause-without-a-loader", "LOP004", slicing("--pause=0.8", "--steps=250"), strength="just below"),
    seeded(
        "evaluation-without-a-loader",
        "LOP003",
        between("--check=16", "--steps=200", *ALONE[:1], ranks=0),
        line="check(model, torch.rand",
        fixed="--every=10",
        note="with a line printed each time, which is little of it",
        suite="all",
    ),
    seeded(
        "logging",
        "LOP002",
        between("--write-log=60", "--steps=100"),
        line="file.",
        says="write_log",
        fixed="--every=10",
        suite="fast",
    ),
    seeded(
        "logging-a-little",
        "LOP002",
        between("--write-log=5", *ALONE, ranks=0),
        strength="just above",
        fixed="--every=10",
    ),
    seeded("logging-hardly", "LOP002", between("--write-log=0.8", *STEPS), strength="just below"),
    seeded(
        "logging-before-the-update",
        "LOP002",
        before_update("--write-norms=60", "--steps=100", ranks=2),
        line="file.",
        says="write_norms",
        fixed="--every=10",
    ),
    seeded(
        "histograms-before-the-update",
        "LOP004",
        before_update("--histograms=32", "--clip=norm", *ALONE[:1], "--steps=200"),
        says="histograms",
        fixed="--every=10",
        suite="all",
    ),
    seeded(
        "a-pause-before-the-update",
        "LOP004",
        before_update("--wait=30", "--steps=150"),
        line="time.sleep(",
        fixed="--every=10",
    ),
    seeded(
        "histograms-seldom-before-the-update",
        "LOP004",
        before_update("--histograms=32", "--clip=norm", "--every=10", *ALONE[:1], "--steps=200"),
        strength="just below",
        suite="all",
    ),
    seeded(
        "evaluation",
        "LOP003",
        between("--evaluate-every=5", "--steps=150"),
        fixed="--evaluate-every=50",
        suite="fast",
    ),
    seeded(
        "evaluation-a-little",
        "LOP003",
        between("--evaluate-every=20", "--evaluate-batches=9", *ALONE, ranks=0),
        strength="just above",
        fixed="--evaluate-every=60",
    ),
    fault(
        "all-ranks-validate-everything",
        "LOP003",
        validating(),
        line="DataLoader(held_out",
        says="distribute it",
        fixed="--share",
    ),
    fault(
        "all-ranks-validate-a-little-of-everything",
        "LOP003",
        validating("--held-out=2560"),
        strength="just above",
        line="DataLoader(held_out",
        says="distribute it",
        fixed="--share",
    ),
    fault(
        "all-ranks-validate-everything-seldom",
        "LOP003",
        validating("--held-out=1024", "--every=40"),
        strength="just below",
    ),
    seeded("evaluation-seldom", "LOP003", between("--evaluate-every=40", *STEPS), strength="just below"),
    seeded(
        "pause",
        "LOP004",
        between("--pause=60", "--steps=100"),
        line="time.sleep(",
        says="after_step",
        fixed="--every=10",
        suite="fast",
    ),
    seeded(
        "pause-a-little",
        "LOP004",
        between("--pause=4", *ALONE, ranks=0),
        strength="just above",
        line="time.sleep(",
        fixed="--every=10",
    ),
    seeded("pause-hardly", "LOP004", between("--pause=0.8", *STEPS), strength="just below"),
    seeded(
        "average-of-weights-by-tensor",
        "LOP004",
        averages("--batch=4", "--steps=150"),
        line="kept.data = DECAY",
        says="all tensors at once",
        fixed="--average=at-once",
    ),
    seeded(
        "average-of-weights-by-tensor-a-little",
        "LOP004",
        averages(*MOBILE, "--steps=250"),
        strength="just above",
        line="kept.data = DECAY",
        fixed="--average=at-once",
    ),
    seeded(
        "average-of-weights-by-tensor-hardly",
        "LOP004",
        averages(*MOBILE, "--batch=64", "--steps=60"),
        strength="just below",
    ),
)
