"""Reference performance of GPUs: right units, a source for each figure, and none where nothing was measured."""

from __future__ import annotations

import csv
from dataclasses import fields
from importlib.resources import files

import pytest

from rn50_advisor.advisor.reference.gpu_deliveries import Figure, GpuDelivery, all_deliveries, delivery
from rn50_advisor.advisor.reference.gpu_names import known_models
from rn50_advisor.advisor.reference.training_speeds import rows, sources

# Bandwidths of the data sheets in GB/s: of the memory, of the slot (a direction), of NVLink (both directions).
SHEETS = {
    ("V100-SXM", ""): (900, 15.8, 300),
    ("A100-SXM", "40GB"): (1555, 31.5, 600),
    ("A100-SXM", ""): (2039, 31.5, 600),
    ("A100-PCIe", "40GB"): (1555, 31.5, 0),
    ("A100-PCIe", ""): (1935, 31.5, 0),
    ("H100-PCIe", ""): (2000, 63, 0),
    ("H100-NVL", ""): (3938, 63, 0),
    ("H100-SXM", ""): (3350, 63, 900),
    ("H200", ""): (4800, 63, 900),
    ("B200", ""): (8000, 63, 1800),
    ("L40S", ""): (864, 31.5, 0),
    ("A40", ""): (696, 31.5, 0),
    ("A10", ""): (600, 31.5, 0),
    ("A10G", ""): (600, 31.5, 0),
    ("L4", ""): (300, 31.5, 0),
    ("T4", ""): (320, 15.8, 0),
    ("RTX3090", ""): (936, 31.5, 0),
    ("RTX4090", ""): (1008, 31.5, 0),
}


@pytest.mark.parametrize("found", all_deliveries(), ids=lambda one: f"{one.gpu} {one.named}".strip())
def test_figures_stay_below_the_data_sheet_and_near_it(found: GpuDelivery) -> None:
    """GB for GiB is 7 %; bits for bytes, or one GPU's for eight, is a factor."""
    memory, slot, nvlink = SHEETS[found.gpu, found.named]
    if found.hbm_gb_per_s is not None:
        assert 0.6 * memory <= found.hbm_gb_per_s.lo <= found.hbm_gb_per_s.hi <= memory
    if found.h2d_gb_per_s is not None:
        assert 0.5 * slot <= found.h2d_gb_per_s.lo <= found.h2d_gb_per_s.hi <= slot
    if found.allreduce8_gb_per_s is not None:
        # a ring moves half of both directions at best; the switch's own sums (NVLS) bring a third more
        assert 0.3 * nvlink <= found.allreduce8_gb_per_s.lo <= found.allreduce8_gb_per_s.hi <= 0.55 * nvlink
    assert (found.allreduce8_gb_per_s is None) == (nvlink == 0)
    if found.allreduce_ring8_gb_per_s is not None:
        assert found.allreduce8_gb_per_s is not None
        assert 0.3 * nvlink <= found.allreduce_ring8_gb_per_s.lo < found.allreduce8_gb_per_s.lo


def test_every_row_is_checked_and_names_a_known_gpu() -> None:
    assert {(one.gpu, one.named) for one in all_deliveries()} == set(SHEETS)
    assert {gpu for gpu, _ in SHEETS} <= set(known_models())


def figures(one: GpuDelivery) -> list[Figure]:
    return [value for field in fields(one) if isinstance(value := getattr(one, field.name), Figure)]


def test_every_figure_has_the_key_of_a_source_with_an_address() -> None:
    for one in all_deliveries():
        assert figures(one)
        for figure in figures(one):
            assert figure.keys and all(sources()[key].url for key in figure.keys), one
            assert all(sources()[key].url in figure.source for key in figure.keys)


def test_no_source_is_kept_for_nothing_and_no_key_stands_without_a_figure() -> None:
    used = {key for one in all_deliveries() for figure in figures(one) for key in figure.keys}
    assert used | {row.source for row in rows()} == set(sources())
    text = (files("rn50_advisor.advisor.reference") / "gpus.csv").read_text(encoding="utf-8")
    for cells in csv.DictReader(text.splitlines()):
        for what in ("hbm", "half", "h2d", "allreduce8", "allreduce_ring8"):
            told = [value for name, value in cells.items() if name.startswith(f"{what}_")]
            assert all(told) or not any(told), (cells["gpu"], what)


def test_compute_is_that_of_tensor_cores() -> None:
    told = [one.half_tflop_per_s for one in all_deliveries() if one.half_tflop_per_s is not None]
    assert all(20 <= figure.lo <= figure.hi <= 2500 for figure in told)


def test_a_device_is_found_by_its_drivers_name_and_unknown_ones_are_not() -> None:
    found = delivery("NVIDIA H100 80GB HBM3")
    assert found is not None and found.gpu == "H100-SXM" and found == delivery("H100-SXM")
    assert delivery("NVIDIA GeForce RTX 5090") is None and delivery("") is None


def test_memory_of_forty_gigabytes_is_slower_than_that_of_eighty() -> None:
    """The same model, and the only one that a driver tells apart by its name alone."""
    small, large = delivery("NVIDIA A100-SXM4-40GB"), delivery("NVIDIA A100-SXM4-80GB")
    assert small is not None and small.hbm_gb_per_s is not None and small.named == "40GB"
    assert large is not None and large.hbm_gb_per_s is not None and large.named == ""
    assert small.hbm_gb_per_s.hi < large.hbm_gb_per_s.lo
    assert delivery("NVIDIA A100-PCIE-40GB") != delivery("NVIDIA A100 80GB PCIe")
