"""The exchange of gradients: a slow network, and a search for what nobody has lost."""

from __future__ import annotations

from samples.faults.fixtures import SlowLoopback
from samples.faults.scenario import Job, Remedy, Scenario, Truth


def wire(*arguments: str) -> Job:
    return Job("faults/jobs/wire.py", arguments, ranks=2)


VIT = Job("faults/jobs/vit_spawn.py", ("--steps=120",))
SCENARIOS = (
    Scenario(
        name="slow-wire",
        family="wire",
        job=wire("--hidden=512", "--steps=70"),
        fixtures=(SlowLoopback("1gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=512", "--steps=70", "--compress")),
        fast=True,
    ),
    Scenario(
        name="slower-wire-accumulating",
        family="wire",
        job=wire("--hidden=256", "--steps=60", "--accumulate=2"),
        fixtures=(SlowLoopback("300mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
        remedy=Remedy(job=wire("--hidden=256", "--steps=60", "--accumulate=2", "--compress")),
    ),
    Scenario(
        name="slow-wire-resnet18",
        family="wire",
        job=Job(
            "train.py",
            (
                "--synthetic",
                "--no-eval",
                "--workers=0",
                "--model=resnet18",
                "--image-size=32",
                "--batch-size=8",
                "--steps=60",
            ),
            ranks=2,
        ),
        fixtures=(SlowLoopback("2gbit"),),
        truth=Truth(roots=("COM001",)),
        strength="clear",
    ),
    Scenario(
        name="slow-wire-a-little",
        family="wire",
        job=VIT,
        fixtures=(SlowLoopback("800mbit"),),
        truth=Truth(roots=("COM001",)),
        strength="just above",
        remedy=Remedy(fixtures=(SlowLoopback("1600mbit"),)),
        note="a faster path is one of the advices: twice as fast is as good as half the bytes",
    ),
    Scenario(
        name="wire-that-suffices",
        family="wire",
        job=VIT,
        fixtures=(SlowLoopback("12gbit"),),
        truth=Truth(never=("COM001",)),
        strength="just below",
    ),
    Scenario(
        name="search-for-unused-parameters",
        family="wire",
        job=Job("faults/jobs/vit_spawn.py", ("--steps=150", "--depth=8", "--batch=4", "--find-unused")),
        truth=Truth(also=("COM004",), noted=("COM004",)),
        strength="clear",
        note="costs little on CPU, so that the verdict stays healthy or becomes COM004's; said it must be",
    ),
)
