"""Short memory: a control group nearly full of memory that cannot be reclaimed, or filled by workers' copies of Python objects."""

from __future__ import annotations

from samples.faults.fixtures import MemoryLimit, WarmLibraries
from samples.faults.scenario import HEALTHY, Job, Scenario, Strength, Truth, sound_twin


def filled(share: float) -> Job:
    return Job("faults/jobs/host/memory.py", (f"--fill={share:g}", "--steps=250"))


def records(name: str, strength: Strength, truth: Truth, limit_mb: int, *arguments: str, note: str = "") -> Scenario:
    """Two workers read 600,000 dicts, of which each holds 180 MB of copies in the end; the rank itself takes 750 MB."""
    job = Job("faults/jobs/input/records.py", arguments)
    limits = (WarmLibraries(), MemoryLimit(limit_mb))
    return Scenario(
        name=name, job=job, fixtures=limits, truth=truth, strength=strength, note=note, late="they copy for an epoch"
    )


COPIES = Truth(roots=("MEM002",), also=("DAT007",), says="records, a list of 600,000 of dict")
A_NOTE = Truth(roots=("DAT020", HEALTHY), noted=("MEM002",), also=("DAT007",))
# The workers' garbage collector stalls them for 0.15 s in every hundred batches or so.
NO_COPIES = Truth(never=("MEM002",), silent=("MEM002",), also=("DAT007", "DAT020", "RUN004"))
SCENARIOS = (
    records("workers-copy-the-records", "clear", COPIES, 1350),
    records("workers-copy-the-records-with-some-room", "just above", A_NOTE, 1900, note="it costs nothing"),
    records("workers-copy-the-records-with-enough-room", "just below", NO_COPIES, 2500),
    records("workers-read-arrays", "just below", NO_COPIES, 1350, "--arrays", note="arrays are not copied"),
    Scenario(
        name="a-limit-almost-reached",
        job=filled(0.93),
        fixtures=(WarmLibraries(), MemoryLimit(900)),
        truth=Truth(noted=("MEM001",)),
        strength="just above",
        note="it costs nothing as long as nothing more is asked for; the net itself takes the rest up to 0.96",
    ),
    sound_twin("a-limit-with-a-little-room", "MEM001", filled(0.88), WarmLibraries(), MemoryLimit(900)),
)
