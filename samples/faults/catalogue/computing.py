"""Computing that the job's own settings slow down: an unfused optimizer, double precision, activations computed twice."""

from __future__ import annotations

from typing import Any

from samples.faults.scenario import Job, Scenario, Untouched, fault


def perceptron(*arguments: str) -> Job:
    return Job("faults/jobs/compute/perceptron.py", arguments, ranks=0, start="one by one")


def seeded(name: str, rule: str, *arguments: str, fixed: tuple[str, ...] = (), **more: Any) -> Scenario:
    """`fixed`: arguments of the job with the fix."""
    alike: tuple[Untouched, ...] = {"CMP014": ("forward", "backward"), "CMP016": ("forward",)}.get(rule, ())
    with_fix = perceptron(*fixed) if fixed else None
    return fault(name, rule, perceptron(*arguments), fixed=with_fix, untouched=alike, **more)


LARGE = ("--batch=16", "--width=1024", "--layers=4", "--steps=300")
SMALL = ("--batch=16", "--width=128", "--layers=24", "--steps=1200")
MODERATE = ("--batch=256", "--width=768", "--layers=4", "--steps=300")
DEEP = ("--batch=256", "--layers=12", "--steps=300")
SCENARIOS = (
    seeded(
        "optimizer-not-fused", "CMP014", *LARGE, "--optimizer=AdamW", fixed=(*LARGE, "--optimizer=AdamW", "--fused")
    ),
    seeded(
        "optimizer-of-many-tensors-not-fused",
        "CMP014",
        *SMALL,
        "--optimizer=Adam",
        fixed=(*SMALL, "--optimizer=Adam", "--fused"),
    ),
    seeded(
        "optimizer-not-fused-a-little",
        "CMP014",
        *MODERATE,
        "--optimizer=AdamW",
        fixed=(*MODERATE, "--optimizer=AdamW", "--fused"),
        strength="just above",
    ),
    seeded(
        "optimizer-not-fused-hardly",
        "CMP014",
        "--batch=1536",
        "--width=256",
        "--steps=200",
        "--optimizer=AdamW",
        strength="just below",
    ),
    seeded("double-precision", "CMP015", "--width=768", "--double", fixed=("--width=768",)),
    seeded(
        "double-precision-of-a-small-model",
        "CMP015",
        "--width=128",
        "--batch=32",
        "--steps=1500",
        "--double",
        fixed=("--width=128", "--batch=32", "--steps=1500"),
        strength="just above",
    ),
    seeded("activations-twice", "CMP016", *DEEP, "--checkpointed=12", fixed=DEEP, line="rows = checkpoint("),
    seeded(
        "activations-twice-in-half-of-the-layers",
        "CMP016",
        *DEEP,
        "--checkpointed=6",
        fixed=DEEP,
        strength="just above",
        line="rows = checkpoint(",
    ),
    seeded("activations-twice-in-two-layers", "CMP016", *DEEP, "--checkpointed=2", strength="just below"),
)
