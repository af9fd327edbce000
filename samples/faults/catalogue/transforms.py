"""Input faults caused by a single transform."""

from __future__ import annotations

from typing import Any

from samples.faults.fixtures import Images
from samples.faults.scenario import Fixture, Job, Scenario, fault

COSTLY = "def __call__(self, picture: np.ndarray) -> np.ndarray:"
BLURRED = ("--images={images}", "--batch=12", "--width=64", "--steps=60", "--workers=2")
job = Job("faults/jobs/input/transforms.py")


def seeded(name: str, given: Job, *fixtures: Fixture, line: str = COSTLY, **more: Any) -> Scenario:
    return fault(name, "DAT011", given, *fixtures, line=line, **more)


SCENARIOS = (
    seeded(
        "one-transform-dominates",
        job("--costly=5", "--usual=1", "--steps=100", "--workers=2"),
        fixed=("--costly=1.5", "--steps=150"),
        says="Sharpen",
    ),
    seeded(
        "one-transform-dominates-two-ranks",
        job("--costly=5", "--usual=1.5", "--steps=60", "--workers=1", ranks=2),
        fixed=("--costly=1.5", "--steps=90"),
        says="Sharpen",
        suite="all",
    ),
    seeded(
        "one-transform-is-nearly-half-of-a-sample",
        job("--costly=3.2", "--usual=3.8", "--steps=100", "--workers=2"),
        fixed=("--costly=0.8", "--steps=120"),
        strength="just above",
        says="Sharpen",
    ),
    seeded(
        "one-transform-is-a-good-third-of-a-sample",
        job("--costly=3", "--usual=5.2", "--steps=100", "--workers=2"),
        strength="just below",
        also=("DAT001",),
    ),
    seeded(
        "blur-with-a-large-kernel",
        job(*BLURRED, "--kernel=31"),
        Images(per_class=32),
        fixed="--kernel=5",
        line="data = DataLoader(",
        says="GaussianBlur",
        suite="all",
    ),
    fault(
        "one-transform-in-the-training-process",
        "DAT003",
        job("--costly=2", "--usual=0.5", "--steps=100"),
        noted=("DAT011",),
        note="one more worker costs a word; the transform is reported under it",
    ),
)
