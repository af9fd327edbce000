"""The table of peaks: units are right, and no row contradicts a measurement."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.peaks.gpu_peaks import peak, peaks
from rn50_advisor.advisor.reference.gpu_deliveries import all_deliveries
from rn50_advisor.advisor.reference.gpu_names import known_models as known_gpus


@pytest.mark.parametrize("gpu", known_gpus())
def test_every_gpu_whose_name_is_known_has_a_peak_in_the_right_order(gpu: str) -> None:
    tflops = peak(gpu).tflops
    assert 5 < tflops["fp32"] < 100 and 50 < tflops["fp16"] < 3000
    assert tflops["fp32"] <= tflops.get("tf32", tflops["fp32"]) <= tflops["fp16"]
    assert tflops.get("bf16", tflops["fp16"]) == tflops["fp16"] and ("bf16" in tflops) == ("tf32" in tflops)
    assert peak(gpu).source and set(peaks()) == set(known_gpus())


@pytest.mark.parametrize("delivery", all_deliveries(), ids=lambda d: f"{d.gpu} {d.named}".strip())
def test_nobody_has_measured_more_than_the_peak_nor_less_than_a_third(delivery) -> None:
    """The lowest is a T4, whose 70 W do not suffice for more. An RTX 4090 clocks above its vendor's figure."""
    half = peak(delivery.gpu).tflops["fp16"]
    figure = delivery.half_tflop_per_s
    assert figure is None or half / 3 <= figure.lo <= figure.hi <= 1.02 * half


def test_a_driver_s_name_finds_its_row() -> None:
    assert peak("NVIDIA A100-SXM4-80GB").gpu == "A100-SXM" and peak("Tesla V100-SXM2-16GB").gpu == "V100"
    assert peak("NVIDIA GeForce GT 710") is None and peak("") is None
