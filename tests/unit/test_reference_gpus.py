"""What GPUs deliver: figures in the units that they are said to be in, and none where nobody measured."""

from __future__ import annotations

import pytest

from advisor.reference.gpu_names import known_models
from advisor.reference.gpus import all_deliveries, delivery

# Bandwidths of the data sheets in GB/s: of the memory, of the slot (a direction), of NVLink (both directions).
SHEETS = {
    "V100": (900, 15.8, 300),
    "A100-SXM": (2039, 31.5, 600),
    "H100-SXM": (3350, 63, 900),
    "H200": (4800, 63, 900),
    "B200": (8000, 63, 1800),
    "L40S": (864, 31.5, 0),
    "A10G": (600, 31.5, 0),
    "L4": (300, 31.5, 0),
    "T4": (320, 15.8, 0),
}


@pytest.mark.parametrize("gpu", SHEETS)
def test_figures_stay_below_the_data_sheet_and_near_it(gpu: str) -> None:
    """GB for GiB is 7 %; bits for bytes, or one GPU's for eight, is a factor."""
    memory, slot, nvlink = SHEETS[gpu]
    found = delivery(gpu)
    assert found is not None
    assert 0.6 * memory <= found.hbm_gb_per_s[0] <= found.hbm_gb_per_s[1] <= memory
    if found.h2d_gb_per_s is not None:
        assert 0.5 * slot <= found.h2d_gb_per_s[0] <= found.h2d_gb_per_s[1] <= slot
    if found.allreduce8_gb_per_s is not None:
        # a ring moves half of both directions at best; the switch's own sums (NVLS) bring a third more
        assert 0.3 * nvlink <= found.allreduce8_gb_per_s[0] <= found.allreduce8_gb_per_s[1] <= 0.55 * nvlink
    assert (found.allreduce8_gb_per_s is None) == (nvlink == 0)
    if found.allreduce_ring8_gb_per_s is not None and found.allreduce8_gb_per_s is not None:
        assert found.allreduce_ring8_gb_per_s < found.allreduce8_gb_per_s[0]


def test_every_row_is_checked_and_names_a_known_gpu() -> None:
    assert {one.gpu for one in all_deliveries()} == set(SHEETS)
    assert set(SHEETS) <= set(known_models())


def test_compute_is_that_of_tensor_cores() -> None:
    assert all(60 <= one.half_tflop_per_s <= 2500 for one in all_deliveries())


def test_a_device_is_found_by_its_drivers_name_and_unknown_ones_are_not() -> None:
    found = delivery("NVIDIA H100 80GB HBM3")
    assert found is not None and found.gpu == "H100-SXM" and not found.half_is_spec
    assert delivery("NVIDIA H100 PCIe") is None
    assert delivery("NVIDIA GeForce RTX 5090") is None
