"""Faults in the course of a run: it takes minutes to begin, becomes slower at some step, or stalls periodically."""

from __future__ import annotations

from typing import Any

from samples.faults.scenario import Job, Scenario, Strength, Truth, fault, sound_twin

begun = Job("faults/jobs/course/starting.py")
rhythm = Job("faults/jobs/course/rhythm.py", start="one by one")


def seeded(name: str, rule: str, job: Job, **more: Any) -> Scenario:
    """The faults precede the backward pass, which on several ranks includes waiting for the others."""
    return fault(name, rule, job, untouched=() if job.ranks else ("backward",), **more)


def starting(name: str, argument: str, strength: Strength) -> Scenario:
    truth = Truth(also=("LOP005",), noted=("LOP005",))
    return Scenario(name=name, job=begun(argument), truth=truth, strength=strength, note=NEVER_THE_VERDICT)


NEVER_THE_VERDICT = "it is reported and never the verdict: no step is faster without it"
LATE = 204  # first step with the fault: leaves some seconds at the old speed and ten at the new one
LONG = ("--width=48", "--steps=500")
LATE_TWO = 130  # for two ranks, whose steps are longer
LONG_TWO = ("--width=48", "--steps=300")
# Scenarios with the same fixed job are adjacent, so that it runs once for all of them.
SCENARIOS = (
    starting("long-index", "--index=150", "clear"),
    starting("long-first-step", "--compile=125", "just above"),
    sound_twin("index-of-less-than-two-minutes", "LOP005", begun("--index=100"), note=NEVER_THE_VERDICT),
    seeded(
        "slower-from-some-step-on",
        "RUN003",
        rhythm("--slow=20", f"--slow-from={LATE}", *LONG),
        says="from step 20",
        fixed=rhythm(*LONG),
        onset_step=LATE,
    ),
    seeded(
        "slower-from-some-step-on-a-little",
        "RUN003",
        rhythm("--slow=9", f"--slow-from={LATE}", *LONG),
        strength="just above",
        fixed=rhythm(*LONG),
        onset_step=LATE,
    ),
    seeded(
        "stalls-every-few-steps-a-little",
        "RUN004",
        rhythm("--stall=80", "--every=20", *LONG),
        strength="just above",
        fixed=rhythm(*LONG),
    ),
    seeded(
        "slower-from-some-step-on-on-all-ranks",
        "RUN003",
        rhythm("--slow=25", f"--slow-from={LATE_TWO}", *LONG_TWO, ranks=2),
        fixed=rhythm(*LONG_TWO, ranks=2),
        onset_step=LATE_TWO,
        suite="all",
    ),
    seeded(
        "stalls-of-one-rank",
        "RUN004",
        rhythm("--stall=120", "--every=15", "--rank=1", *LONG_TWO, ranks=2),
        ranks=(1,),
        says="very 15 steps",
        fixed=rhythm(*LONG_TWO, ranks=2),
        suite="all",
    ),
    seeded(
        "slower-from-some-step-on-hardly",
        "RUN003",
        rhythm("--slow=1.2", f"--slow-from={LATE}", *LONG),
        strength="just below",
    ),
    seeded(
        "faster-from-some-step-on",
        "RUN003",
        rhythm("--slow=15", f"--slow-until={LATE}", *LONG),
        strength="just below",
        note="as caches get warm: that is no fault",
    ),
    seeded(
        "stalls-every-few-steps",
        "RUN004",
        rhythm("--stall=80", "--every=10", "--width=48", "--steps=300"),
        says="very 10 steps",
        fixed="--every=100",
        suite="fast",
    ),
    seeded(
        "stalls-every-few-steps-hardly",
        "RUN004",
        rhythm("--stall=40", "--every=70", "--width=48", "--steps=430"),
        strength="just below",
    ),
    seeded(
        "stalls-by-chance",
        "RUN004",
        rhythm("--stall=80", "--every=20", "--by-chance", "--width=48", "--steps=300"),
        strength="just below",
        note="as long, but without a period",
    ),
)
