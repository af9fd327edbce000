"""Double-precision (FP64) training.

What it does: finds training whose parameters are 64-bit floating-point numbers.

Fires when: the parameters that the optimizer updates have 8 bytes an element.

Why it is slow: double precision takes twice the memory and, on a CPU, twice the arithmetic of single precision. Most
GPUs have a thirty-second or a sixty-fourth of the units for it, and tensor cores only in data-centre models.

Evidence: bytes and elements of the trained parameters; the time of forward, backward and optimizer.

Fix: make the model and its batches `float32`. NumPy's arrays are `float64` by default, and `torch.from_numpy`
keeps that: convert the batches once, `.float()`, instead of the model, `.double()`.

Estimate: on a CPU, forward, backward and optimizer take between 50 and 95 % of their time; with convolutions or
recurrent layers, whose fast code has no double precision, between 16 and 65 %. On a GPU there is none: it depends on
the model of the GPU.

False alarms: some computations need the precision: second-order optimizers, differential equations over long times,
gradient checks. If the results are checked against single precision and differ, keep double.
"""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import Expression, Invocation, Setup
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration, number
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import compute_phases_s, layers_of, step_computing, trained_by
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Share of the time in double precision that single precision takes on CPUs, at best and at worst. Measured on two cores: 63 and 67 % with
# layers of 768 x 768; 72 and 100 % with 128 x 128, where steps of 1.5 ms are mostly the cost of each operation.
_LEFT_SHARE = (0.5, 0.95)
# With layers for which oneDNN has no double precision. Measured in turns (torch 2.14, two threads, medians of six): convolutions in one
# dimension 0.16 and 0.31, in two 0.22 (depthwise), 0.26, 0.39, 0.39 and 0.65 (1 x 1), transposed 0.39, in three 0.07; LSTM 0.27, GRU 0.61.
_LEFT_SHARE_SLOW = (0.16, 0.65)
_SLOW = re.compile(r"(Lazy)?Conv(Transpose)?\dd$|(LSTM|GRU|RNN)$")
_DOUBLE_BYTES = 8.0


# Only to find the line that sets the default dtype or calls `.double()`.
_DEFAULT = Setup((Invocation("torch.set_default_dtype", (Expression("torch.float32"),)),))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, optimizer = a.value(STEP_TIME_S), trained_by(a)
    if optimizer is None:
        return NotMeasured(RULE.id, ("optimizer",))
    elements = optimizer["elements"]
    if optimizer["parameter_bytes"] < _DOUBLE_BYTES * elements:
        return Clear(RULE.id)
    spent = compute_phases_s(a)
    slow = any(_SLOW.match(kind) for facts in a.rank_facts.values() for kind in layers_of(facts))
    best, worst = (step_computing(a, share) for share in (_LEFT_SHARE_SLOW if slow else _LEFT_SHARE))
    gain = step - 0.5 * (best + worst)
    level = severity(gain / step)
    if spent < t["compute"] * step or level is None:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Double-precision (FP64) training",
        severity=level,
        confidence=confidence(a, cap=0.8),
        seconds_per_step=0.0 if a.on_gpu else gain,
        evidence=(
            Evidence(
                "parameters",
                8.0,
                "B",
                _DOUBLE_BYTES,
                f"for each of {number(elements)} elements that are trained",
                "explains",
            ),
            Evidence(
                "computing",
                spent,
                "s",
                t["compute"] * step,
                f"of a {duration(step)} step in forward, backward and optimizer",
                "continues",
            ),
        ),
        fixes=(
            Fix(
                "float32 for the model and its batches, if the task allows it",
                "batch = batch.float()  # instead of model.double()",
                None,
                "small change",
                call=_DEFAULT,
            ),
        ),
        saving=None if a.on_gpu else model_of(a).saving(best, worst, "single precision"),
    )


RULE = rule(
    __name__,
    "Double-precision (FP64) training",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "compute": Threshold(
            0.2, "of the step: below it, half of its time is less than the difference between two runs"
        )
    },
)
