"""The table of peaks: units are right, and no row contradicts a measurement."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.peaks.gpu_peaks import pcie_width, peak, peaks
from rn50_advisor.advisor.reference.gpu_deliveries import all_deliveries
from rn50_advisor.advisor.reference.gpu_names import known_models as known_gpus


@pytest.mark.parametrize("gpu", known_gpus())
def test_every_gpu_whose_name_is_known_has_a_peak_in_the_right_order(gpu: str) -> None:
    tflops = peak(gpu).tflops
    assert 5 < tflops["fp32"] <= 125
    if "fp16" in tflops:
        assert 50 < tflops["fp16"] < 3000
        assert tflops["fp32"] <= tflops.get("tf32", tflops["fp32"]) <= tflops["fp16"]
        assert tflops.get("bf16", tflops["fp16"]) == tflops["fp16"] and ("bf16" in tflops) == ("tf32" in tflops)
    assert peak(gpu).source and set(peaks()) == set(known_gpus())


@pytest.mark.parametrize("gpu", known_gpus())
def test_fp8_is_twice_half_precision_where_it_is_known_and_never_counts_sparsity(gpu: str) -> None:
    tflops = peak(gpu).tflops
    assert "fp8" not in tflops or tflops["fp8"] == pytest.approx(2 * tflops["fp16"], rel=0.02)


@pytest.mark.parametrize("gpu", known_gpus())
def test_the_host_interface_has_a_source_or_is_unknown(gpu: str) -> None:
    found = peak(gpu)
    assert bool(found.pcie_source) == (found.pcie_gen is not None) == (found.pcie_width is not None)
    assert found.pcie_gen in (None, 3, 4, 5) and found.pcie_width in (None, 8, 16)


def test_what_no_source_states_is_unknown() -> None:
    assert set(peak("NVIDIA L20").tflops) == set(peak("Tesla P100-PCIE-16GB").tflops) == {"fp32"}
    assert pcie_width("NVIDIA GH200 480GB") is None and pcie_width("NVIDIA Z1") is None
    assert pcie_width("NVIDIA L40S") == 16


def test_the_forms_of_a_v100_differ() -> None:
    sxm, card = peak("Tesla V100-SXM2-16GB"), peak("Tesla V100-PCIE-16GB")
    assert (sxm.tflops["fp16"], card.tflops["fp16"]) == (125, 112)


@pytest.mark.parametrize("delivery", all_deliveries(), ids=lambda d: f"{d.gpu} {d.named}".strip())
def test_nobody_has_measured_more_than_the_peak_nor_less_than_a_third(delivery) -> None:
    """The lowest is a T4, whose 70 W do not suffice for more. An RTX 4090 clocks above its vendor's figure."""
    half = peak(delivery.gpu).tflops["fp16"]
    figure = delivery.half_tflop_per_s
    assert figure is None or half / 3 <= figure.lo <= figure.hi <= 1.02 * half


def test_a_driver_s_name_finds_its_row() -> None:
    assert peak("NVIDIA A100-SXM4-80GB").gpu == "A100-SXM" and peak("Tesla V100-SXM2-16GB").gpu == "V100-SXM"
    assert peak("NVIDIA GeForce GT 710") is None and peak("") is None
