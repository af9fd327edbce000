"""Throughput below published results for this hardware.

What it does: compares the images/s of ResNet50, or the sequences/s of BERT, with published results for the same GPU,
precision, memory layout and batch size.

Fires when: the job reaches < 70 % of published results for this model and GPU with the same precision, layout and batch.

Why it is slow: the other rules answer that. If none of them fires, the machine itself may be slow.

Evidence: the samples of a step over its time without waiting for input, evaluation, checkpoints and other time between
steps; published measurements of the same model, GPU, number of GPUs and precision, with the same memory layout and a batch
within a quarter of the job's, in two tiers: the rate of typical PyTorch programs (the lowest of them counts, and the
evidence says which it was), and the rate of a vendor's tuned ones. A source that does not state its layout or its batch
is not compared with.

Fix: follow the other findings; `rn50-advisor triage` checks whether the machine is sound.

Estimate: up to the rate of typical programs; no gain is certain.

False alarms: other models, sizes of images or sequences, layouts, batches and GPUs have no row in the table: not
measured. Gradient
clipping, label smoothing, synchronised batch norm and heavy logging legitimately make a job slower than the published
ones.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.pace_measures import (
    REFERENCE_IMAGES_PER_S,
    REFERENCE_OBSERVED_IMAGES_PER_S,
    REFERENCE_TUNED_IMAGES_PER_S,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    usual, observed = a.value(REFERENCE_IMAGES_PER_S), a.value(REFERENCE_OBSERVED_IMAGES_PER_S)
    step, model = a.value(STEP_TIME_S), model_of(a)
    ratio = observed / usual
    working = a.value(STEP_SAMPLES) * len(model.own) / observed
    best = step - working * (1.0 - ratio)
    level = severity((step - best) / 2 / step)
    if round(1.0 - ratio, 9) < t["shortfall"] or level is None:
        return Clear(RULE.id)
    tuned, unit = a.get(REFERENCE_TUNED_IMAGES_PER_S), f"{a.published.samples}/s" if a.published else None
    note = "a vendor's tuned program"
    ceiling = (
        ()
        if tuned is None
        else (Evidence.of(REFERENCE_TUNED_IMAGES_PER_S, tuned, note=note, unit=unit, form="explains"),)
    )
    return Finding(
        rule=RULE.id,
        title=f"Throughput at {100 * ratio:.0f} % of published results for this hardware",
        severity=level,
        confidence=confidence(a, cap=0.7),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence.of(
                REFERENCE_OBSERVED_IMAGES_PER_S,
                observed,
                (1.0 - t["shortfall"]) * usual,
                "of all GPUs, excluding stalls between steps",
                unit=unit,
                form="explains",
            ),
            Evidence.of(
                REFERENCE_IMAGES_PER_S,
                usual,
                note=f"the lowest comparable result of typical PyTorch programs: {a.published.words}"
                if a.published
                else "the lowest of the sources for typical PyTorch programs",
                unit=unit,
                form="explains",
            ),
            *ceiling,
        ),
        fixes=(
            Fix("follow the other findings first", "", None, "small change"),
            Fix("check the machine: rn50-advisor triage", "rn50-advisor triage", None, "outside the code"),
        ),
        saving=model.saving(best, step, "up to typical published throughput; the other findings show how"),
    )


RULE = rule(
    __name__,
    "Throughput below published results for this hardware",
    check,
    needs=(STEP_TIME_S, STEP_SAMPLES, REFERENCE_IMAGES_PER_S, REFERENCE_OBSERVED_IMAGES_PER_S),
    thresholds={
        "shortfall": Threshold(
            0.30, "below the lowest source; sources for one setting differ by a quarter among themselves"
        ),
    },
    triage_checks=(  # GPUs before Ampere have no tensor cores for bf16
        "gpu.{gpu}.hbm_gb_per_s",
        ("gpu.{gpu}.matmul_bf16_tflop_per_s", "gpu.{gpu}.matmul_fp16_tflop_per_s"),
        "gpu.{gpu}.sustained_clock_mhz",
    ),
)
