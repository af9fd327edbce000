"""Jobs that take minutes until they train, and use no core meanwhile.

They are started shortly after one another and train at different times, the last one first.
"""

from __future__ import annotations

from samples.faults.scenario import Job, Scenario, Strength, Truth


def fault(name: str, *arguments: str, strength: Strength) -> Scenario:
    below = strength == "just below"
    truth = Truth(never=("LOP005",), silent=("LOP005",)) if below else Truth(also=("LOP005",), noted=("LOP005",))
    return Scenario(
        name=name,
        family="start",
        job=Job("faults/jobs/starting.py", arguments),
        truth=truth,
        strength=strength,
        waits=True,
        note="it is told and never the verdict: no step is faster without it",
    )


SCENARIOS = (
    fault("long-index", "--index=150", strength="clear"),
    fault("long-first-step", "--compile=125", strength="just above"),
    fault("index-of-less-than-two-minutes", "--index=100", strength="just below"),
)
