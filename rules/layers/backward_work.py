"""What is spared without some gradients of a backward pass, from the work that autograd's graph shows, or from their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.rules.compute.compute_cost import step_sparing

# Time of one written element in multiplications of a matrix product, at least and at most. Of 26 backward passes (five DCGANs, four GANs of
# perceptrons, two between pictures, two classifiers, two transformers) on one core with torch 2.14, the real share that was spared was
# 0.7 to 1.15 times what these give in 24; it was 1.2 times in a DCGAN, and 2.6 times in one with a discriminator of three times its width.
_PER_POINT = (10.0, 100.0)
_PER_POINT_ON_GPU = (10.0, 300.0)  # not measured
_LINE_SAMPLES_MIN = 5
_BETWEEN = (0.7, 1.15)  # times that share
_BETWEEN_ON_GPU = (0.4, 1.15)


def spared_share(a: Analysis, products: Sequence[int], points: Sequence[int]) -> tuple[float, float]:
    """At worst and at best. `products`: multiplications in all, and those that are spared; `points`: elements of other tensors."""
    (all_products, spared_products), (all_points, spared_points) = products, points
    shares = [
        (spared_products + each * spared_points) / max(1.0, all_products + each * all_points)
        for each in (_PER_POINT_ON_GPU if a.on_gpu else _PER_POINT)
    ]
    low, high = _BETWEEN_ON_GPU if a.on_gpu else _BETWEEN
    return low * min(shares), min(1.0, high * max(shares))


def sampled(lines: Sequence[HotLine]) -> HotLine | None:
    """The longest of these lines that enough stack samples found to name it."""
    return next((line for line in lines if line.samples >= _LINE_SAMPLES_MIN), None)


def line_evidence(line: HotLine) -> Evidence:
    return Evidence("stack samples", float(line.samples), "", None, f"{line.file}:{line.line} in {line.function}")


def without_rows(
    a: Analysis, seconds: Mapping[int, float], backward: tuple[float, float], forward: tuple[float, float]
) -> tuple[float, float]:
    """The step without rows that take so many seconds of each rank's backward pass, at best and at worst.

    `backward`, `forward`: what is spared in these passes for each of the seconds, at best and at worst.
    """

    def without(*, hopeful: bool) -> float:
        spared = {
            (rank, phase): of[not hopeful] * each
            for rank, each in seconds.items()
            for phase, of in (("backward", backward), ("forward", forward))
        }
        return step_sparing(a, spared, hopeful=hopeful)

    return without(hopeful=True), without(hopeful=False)
