"""Faults in the course of a run: it becomes slower at some step, or stalls periodically."""

from __future__ import annotations

from samples.faults.scenario import Job, Remedy, Scenario, Strength, Truth


def rhythm(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/rhythm.py", arguments, ranks=ranks, start="one by one")


def fault(
    name: str,
    rule: str,
    job: Job,
    *,
    strength: Strength = "clear",
    rank: int | None = None,
    fixed: Job | None = None,
    says: str = "",
    also: tuple[str, ...] = (),
    onset_step: int = 0,
    fast: bool = False,
    note: str = "",
    variant: bool = False,
) -> Scenario:
    ranks = None if rank is None else (rank,)
    roots = Truth(roots=(rule,), ranks=ranks, says=says, also=also)
    return Scenario(
        name=name,
        family="course",
        job=job,
        truth=Truth(never=(rule,)) if strength == "just below" else roots,
        strength=strength,
        # the faults precede the backward pass; with several ranks that pass includes waiting for others
        remedy=Remedy(job=fixed, untouched=() if job.ranks else ("backward",)) if fixed else None,
        onset_step=onset_step,
        fast=fast,
        note=note,
        variant=variant,
    )


LATE = 204  # first step with the fault: leaves some seconds at the old speed and ten at the new one
LONG = ("--width=48", "--steps=500")
LATE_TWO = 130  # for two ranks, whose steps are longer
LONG_TWO = ("--width=48", "--steps=300")
# Scenarios with the same fixed job are adjacent, so that it runs once for all of them.
SCENARIOS = (
    fault(
        "slower-from-some-step-on",
        "RUN003",
        rhythm("--slow=20", f"--slow-from={LATE}", *LONG),
        says="at step 20",
        fixed=rhythm(*LONG),
        onset_step=LATE,
    ),
    fault(
        "slower-from-some-step-on-a-little",
        "RUN003",
        rhythm("--slow=9", f"--slow-from={LATE}", *LONG),
        strength="just above",
        fixed=rhythm(*LONG),
        onset_step=LATE,
    ),
    fault(
        "stalls-every-few-steps-a-little",
        "RUN004",
        rhythm("--stall=80", "--every=20", *LONG),
        strength="just above",
        fixed=rhythm(*LONG),
    ),
    fault(
        "slower-from-some-step-on-on-all-ranks",
        "RUN003",
        rhythm("--slow=25", f"--slow-from={LATE_TWO}", *LONG_TWO, ranks=2),
        fixed=rhythm(*LONG_TWO, ranks=2),
        onset_step=LATE_TWO,
        variant=True,
    ),
    fault(
        "stalls-of-one-rank",
        "RUN004",
        rhythm("--stall=120", "--every=15", "--rank=1", *LONG_TWO, ranks=2),
        rank=1,
        says="very 15 steps",
        fixed=rhythm(*LONG_TWO, ranks=2),
        variant=True,
    ),
    fault(
        "slower-from-some-step-on-hardly",
        "RUN003",
        rhythm("--slow=1.2", f"--slow-from={LATE}", *LONG),
        strength="just below",
    ),
    fault(
        "faster-from-some-step-on",
        "RUN003",
        rhythm("--slow=15", f"--slow-until={LATE}", *LONG),
        strength="just below",
        note="as caches get warm: that is no fault",
    ),
    fault(
        "stalls-every-few-steps",
        "RUN004",
        rhythm("--stall=80", "--every=10", "--width=48", "--steps=300"),
        says="very 10 steps",
        fixed=rhythm("--stall=80", "--every=100", "--width=48", "--steps=300"),
        fast=True,
    ),
    fault(
        "stalls-every-few-steps-hardly",
        "RUN004",
        rhythm("--stall=40", "--every=70", "--width=48", "--steps=430"),
        strength="just below",
    ),
    fault(
        "stalls-by-chance",
        "RUN004",
        rhythm("--stall=80", "--every=20", "--by-chance", "--width=48", "--steps=300"),
        strength="just below",
        note="as long, but without a period",
    ),
)
