"""Input faults caused by a single transform."""

from __future__ import annotations

from samples.faults.fixtures import Images
from samples.faults.scenario import Job, Remedy, Scenario, Strength, Truth

COSTLY = "def __call__(self, picture: np.ndarray) -> np.ndarray:"
BLURRED = ("--images={images}", "--batch=12", "--width=64", "--steps=60", "--workers=2")


def job(*arguments: str, ranks: int = 0) -> Job:
    return Job("faults/jobs/transforms.py", arguments, ranks=ranks)


def fault(
    name: str,
    given: Job,
    *,
    strength: Strength = "clear",
    fixed: Job | None = None,
    line: str = COSTLY,
    says: str = "",
    images: Images | None = None,
    note: str = "",
    variant: bool = False,
) -> Scenario:
    below = strength == "just below"
    return Scenario(
        name=name,
        family="input",
        job=given,
        fixtures=(images,) if images else (),
        truth=Truth(never=("DAT011",), also=("DAT001",)) if below else Truth(roots=("DAT011",), line=line, says=says),
        strength=strength,
        remedy=Remedy(job=fixed) if fixed else None,
        note=note,
        variant=variant,
    )


SCENARIOS = (
    fault(
        "one-transform-dominates",
        job("--costly=5", "--usual=1", "--steps=100", "--workers=2"),
        fixed=job("--costly=1.5", "--usual=1", "--steps=150", "--workers=2"),
        says="Sharpen",
    ),
    fault(
        "one-transform-dominates-two-ranks",
        job("--costly=5", "--usual=1.5", "--steps=60", "--workers=1", ranks=2),
        fixed=job("--costly=1.5", "--usual=1.5", "--steps=90", "--workers=1", ranks=2),
        says="Sharpen",
        variant=True,
    ),
    fault(
        "one-transform-is-nearly-half-of-a-sample",
        job("--costly=3.2", "--usual=3.8", "--steps=100", "--workers=2"),
        fixed=job("--costly=0.8", "--usual=3.8", "--steps=120", "--workers=2"),
        strength="just above",
        says="Sharpen",
    ),
    fault(
        "one-transform-is-a-good-third-of-a-sample",
        job("--costly=3", "--usual=5.2", "--steps=100", "--workers=2"),
        strength="just below",
    ),
    fault(
        "blur-with-a-large-kernel",
        job(*BLURRED, "--kernel=31"),
        fixed=job(*BLURRED, "--kernel=5"),
        line="data = DataLoader(",
        says="GaussianBlur",
        images=Images(per_class=32),
        variant=True,
    ),
    Scenario(
        name="one-transform-in-the-training-process",
        family="input",
        job=job("--costly=2", "--usual=0.5", "--steps=100"),
        truth=Truth(roots=("DAT003",), noted=("DAT011",)),
        strength="clear",
        note="one worker more costs a word; the transform stands under it",
    ),
)
