"""Slower than this hardware should be.

What it does: compares the images/s of a known model with what has been measured for it on this GPU, in this precision.

Why it is slow: that is for the other rules to say. Where none of them says anything, the machine itself may be slow.

Evidence: images of a step over its time without waiting for input, evaluation, checkpoints and whatever stands between steps; published
measurements of the same model, GPU, number of GPUs and precision in two tiers, each with its source: what typical PyTorch programs reach
(the least of them counts), and what a vendor's tuned ones do.

Fix: what the other rules say; `rn50-advisor triage` tells whether the machine is sound.

Estimate: up to what typical programs reach, nothing for sure.

False alarms: other models, other sizes of pictures and other GPUs have no row in the table: not measured. Small batches, clipping, label
smoothing, synchronised batch norm and heavy logging make a job slower than the measured ones, rightly.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_CAUSES = (
    "CMP001", "CMP002", "CMP003", "CMP004", "CMP005", "CMP007", "CMP009", "COM001", "COM002", "COM003", "COM005", "COM006", "COM007",
    "COM008", "COM009", "COM010", "CPU001", "CPU002", "CPU003", "CPU004", "CPU005", "GPU001", "GPU002", "GPU003", "GPU005", "GPU006",
    "GPU008", "H2D001", "H2D002", "H2D003",
)  # fmt: skip


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    usual, observed = a.value("reference.images_per_s"), a.value("reference.observed_images_per_s")
    step, model = a.value("step.time_s"), model_of(a)
    ratio = observed / usual
    working = a.value("step.samples") * len(model.own) / observed
    best = step - working * (1.0 - ratio)
    level = severity((step - best) / 2 / step)
    if round(1.0 - ratio, 9) < t["shortfall"] or level is None:
        return Clear(RULE.id)
    tuned = a.get("reference.tuned_images_per_s")
    ceiling = (
        ()
        if tuned is None
        else (Evidence("reference.tuned_images_per_s", tuned, "images/s", None, "a vendor's tuned program"),)
    )
    return Finding(
        rule=RULE.id,
        title=f"{100 * ratio:.0f} % of what this hardware has been measured to reach",
        severity=level,
        confidence=confidence(a, cap=0.7),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence(
                "reference.observed_images_per_s",
                observed,
                "images/s",
                (1.0 - t["shortfall"]) * usual,
                "of all GPUs, stalls between steps left out",
            ),
            Evidence(
                "reference.images_per_s", usual, "images/s", None, "typical PyTorch programs, the least of the sources"
            ),
            *ceiling,
        ),
        fixes=(
            Fix("follow the other findings first", "", None, "small change"),
            Fix("check the machine: rn50-advisor triage", "rn50-advisor triage", None, "outside the code"),
        ),
        saving=model.saving(best, step, "up to what typical programs reach; the other findings tell how"),
        causes=_CAUSES,
    )


RULE = rule(
    __name__,
    "slower than this hardware should be",
    check,
    needs=("step.time_s", "step.samples", "reference.images_per_s", "reference.observed_images_per_s"),
    thresholds={
        "shortfall": Threshold(
            0.30, "of the least of the sources, which differ by a quarter among themselves for one setting"
        ),
    },
)
