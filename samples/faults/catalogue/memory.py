"""Short memory: a control group nearly full of memory that cannot be reclaimed."""

from __future__ import annotations

from samples.faults.fixtures import MemoryLimit, WarmLibraries
from samples.faults.scenario import Job, Scenario, Truth


def filled(share: float) -> Job:
    return Job("faults/jobs/host/memory.py", (f"--fill={share:g}", "--steps=250"))


SCENARIOS = (
    Scenario(
        name="a-limit-almost-reached",
        job=filled(0.93),
        fixtures=(WarmLibraries(), MemoryLimit(900)),
        truth=Truth(noted=("MEM001",)),
        strength="just above",
        note="it costs nothing as long as nothing more is asked for; the net itself takes the rest up to 0.96",
    ),
    Scenario(
        name="a-limit-with-a-little-room",
        job=filled(0.88),
        fixtures=(WarmLibraries(), MemoryLimit(900)),
        truth=Truth(never=("MEM001",), silent=("MEM001",)),
        strength="just below",
    ),
)
