"""Fourier transform of an awkward length.

What it does: finds training on CPUs whose Fourier transforms have a length with a large prime factor: `torch.fft.rfft(x, n=4999)`.

Fires when: transforms of such lengths take ≥ 6 % of the step, forward and backward, and a line that calls one is found.

Why it is slow: a fast transform splits a length into its factors. A large prime factor needs a detour over a longer transform, two to five
times as slow as one of the next length with small factors.

Evidence: three backward passes timed node by node, with the lengths of the transforms; stack samples of the call.

Fix: pad to the next length with factors up to 5 (`scipy.fft.next_fast_len(n, real=True)`), or to a power of two, and cut the result. A
linear convolution stays what it is; a spectrum itself has other frequencies then.

Estimate: 0.4 to 0.85 times the time of these transforms in the backward pass, and as much in the forward pass, which has as many.

False alarms: where the frequencies themselves are used, another length changes them. On a GPU this is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S, STEP_TRANSFORMS_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Saved for each second in the backward pass, there and in the forward pass, at best and at worst.
_OF_BACKWARD, _IN_FORWARD = (0.85, 0.4), (0.85, 0.4)
_FACTORS = (2, 3, 5)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spent = a.by_rank(STEP_TRANSFORMS_S)
    if not spent:
        return NotMeasured(RULE.id, (STEP_TRANSFORMS_S,))
    step = a.value(STEP_TIME_S)
    best, worst = without_rows(a, spent, _OF_BACKWARD, _IN_FORWARD)
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    line = sampled(a.transforming_lines)
    if level is None or line is None or lost < t["transforms"] * step:
        return Clear(RULE.id)
    length = int(line.leaf)
    note = f"of a {duration(step)} step in the backward pass, and about as much in the forward pass"
    return Finding(
        rule=RULE.id,
        title=f"Fourier transform of an awkward length: {length}",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=(
            Evidence.of(STEP_TRANSFORMS_S, common(spent), None, note, form="explains"),
            line_evidence(line),
        ),
        fixes=(
            Fix(
                f"pad to {_next_fast(length)}, whose factors are small, and cut the result",
                "n = scipy.fft.next_fast_len(n, real=True), then torch.fft.rfft(x, n=n) and torch.fft.irfft(y, n=n)[..., :length]",
                Where(line.file, line.line),
                "one line",
            ),
        ),
        saving=model_of(a).saving(best, worst, "a length with small factors"),
    )


def _next_fast(length: int) -> int:
    """The next length with factors up to 5."""
    while True:
        rest = length
        for factor in _FACTORS:
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1


RULE = rule(
    __name__,
    "Fourier transform of an awkward length",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "transforms": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
