"""Faults of the input that storage causes."""

from __future__ import annotations

from samples.faults.fixtures import SlowDisk
from samples.faults.scenario import Job, Remedy, Scenario, Truth

QUICK = 400_000_000  # bytes a second: no limit to these jobs


def reading(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/loading.py", ("--files={disk}", "--width=48", *arguments), ranks=ranks)


SCENARIOS = (
    Scenario(
        name="throttled-disk",
        family="storage",
        job=Job("faults/jobs/loading.py", ("--files={disk}", "--steps=60", "--batch=4", "--workers=1"), ranks=2),
        fixtures=(SlowDisk(2_000_000, files=600),),
        truth=Truth(roots=("DAT002",)),
        strength="clear",
        fast=True,
    ),
    Scenario(
        name="disk-at-half-the-speed-it-takes",
        family="storage",
        job=reading("--steps=120", "--workers=2", "--persistent"),
        fixtures=(SlowDisk(14_000_000, files=2000),),
        truth=Truth(roots=("DAT002",)),
        strength="clear",
        remedy=Remedy(fixtures=(SlowDisk(QUICK, files=2000),)),
    ),
    Scenario(
        name="disk-a-little-too-slow",
        family="storage",
        job=reading("--steps=150", "--workers=2", "--persistent"),
        fixtures=(SlowDisk(23_000_000, files=2500),),
        truth=Truth(roots=("DAT002",)),
        strength="just above",
        remedy=Remedy(fixtures=(SlowDisk(QUICK, files=2500),)),
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
)
