"""Long convolution computed directly.

What it does: finds training on CPUs whose convolutions along a sequence have kernels of 64 numbers and more, one for each channel: learned
filters of sound, long convolutions in place of attention, smoothing along time.

Fires when: transforms would spare ≥ 6 % of the step.

Why it is slow: computed directly, each number of the result needs one product for each number of the kernel. By Fourier transforms the
whole sequence needs about as many as for a kernel of thirty, however long it is.

Evidence: three backward passes timed node by node; the length of the kernels; stack samples of the line that calls them.

Fix: `torch.fft.rfft` of sequence and kernel, padded to the sum of their lengths, their product, and `irfft`: the same result up to
rounding.

Estimate: the backward pass of these convolutions without all but 25 to 45 parts in as many as the kernel is long: both forms in one
process, with kernels of 65 to 513. The forward pass is taken as it is: it is a smaller part, slower by transforms below 130 and faster
above.

False alarms: kernels that sum over all channels gain little, and are not counted; nor are those that skip positions (stride, dilation). On
a GPU this is not measured.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_LONG_KERNELS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.layers.backward_work import line_evidence, sampled, without_rows
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# The length of a kernel that takes as long as transforms, at best and at worst. Measured on a CPU with torch 2.14, two threads, 32
# channels, sequences of 1024 and 8192: backward passes 2.4 and 2.3 times as fast with kernels of 65, 5.4 and 5.3 with 129, 8.6 and
# 10.8 with 257, 11.4 and 21.4 with 513.
_AS_LONG = (25.0, 45.0)
_FORWARD = (0.0, 0.0)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if a.on_gpu:
        return Clear(RULE.id)
    spent, kernel = a.by_rank(STEP_LONG_KERNELS_S), a.long_kernel
    if not spent:
        return NotMeasured(RULE.id, (STEP_LONG_KERNELS_S,))
    step = a.value(STEP_TIME_S)
    if kernel is None:
        return Clear(RULE.id)
    spared = (1.0 - _AS_LONG[0] / kernel.size, 1.0 - _AS_LONG[1] / kernel.size)
    best, worst = without_rows(a, spent, spared, _FORWARD)
    lost = step - (best + worst) / 2
    level = severity(lost / step)
    if level is None or lost < t["kernels"] * step:
        return Clear(RULE.id)
    line = sampled(kernel.lines)
    evidence = [
        Evidence.of(
            STEP_LONG_KERNELS_S,
            common(spent),
            None,
            f"of a {duration(step)} step in the backward pass, with kernels of {kernel.size}",
            form="explains",
        )
    ]
    if line is not None:
        evidence.append(line_evidence(line))
    return Finding(
        rule=RULE.id,
        title=f"Long convolution computed directly: kernels of {kernel.size}",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        evidence=tuple(evidence),
        fixes=(
            Fix(
                "compute it by Fourier transforms",
                "n = scipy.fft.next_fast_len(length + kernel - 1, real=True); torch.fft.irfft(torch.fft.rfft(x, n=n) * "
                "torch.fft.rfft(weight.squeeze(1).flip(-1), n=n), n=n), of which the middle is the result of conv1d",
                None if line is None else Where(line.file, line.line),
                "small change",
            ),
        ),
        saving=model_of(a).saving(best, worst, "products of transforms instead of sums over the kernel"),
    )


RULE = rule(
    __name__,
    "Long convolution computed directly",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "kernels": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few passes are timed"),
    },
)
