"""Jobs that take minutes until they train."""

from __future__ import annotations

from samples.faults.scenario import Job, Scenario, Strength, Truth


def seeded(name: str, *arguments: str, strength: Strength) -> Scenario:
    below = strength == "just below"
    truth = Truth(never=("LOP005",), silent=("LOP005",)) if below else Truth(also=("LOP005",), noted=("LOP005",))
    return Scenario(
        name=name,
        job=Job("faults/jobs/course/starting.py", arguments),
        truth=truth,
        strength=strength,
        note="it is reported and never the verdict: no step is faster without it",
    )


SCENARIOS = (
    seeded("long-index", "--index=150", strength="clear"),
    seeded("long-first-step", "--compile=125", strength="just above"),
    seeded("index-of-less-than-two-minutes", "--index=100", strength="just below"),
)
