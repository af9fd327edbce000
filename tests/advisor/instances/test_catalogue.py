"""Cloud instances: a table without unit errors, and matching by what a machine holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rn50_advisor.advisor.instances import by_name, exactly, instances, match, only_one
from rn50_advisor.advisor.instances.catalogue import sources
from rn50_advisor.advisor.reference.gpu_names import known_models
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose

# Data sheets: nominal GB of one GPU. A row in GiB or MiB, or of another variant, is not among them.
GPU_MEMORY_GB = {
    "V100-SXM": {16, 32},
    "A100-SXM": {40, 80},
    "A100-PCIe": {40, 80},
    "H100-PCIe": {80},
    "H100-SXM": {80},
    "H100-NVL": {94},
    "H200": {141},
    "B200": {180, 192},
    "B300": {288},
    "T4": {16},
    "A10": {24},
    "A10G": {24},
    "L4": {24},
    "L40S": {48},
    "A6000": {48},
}


def test_every_row_names_a_known_gpu_and_its_sources() -> None:
    for one in instances():
        assert one.gpu in known_models() and one.sources
        assert set(one.sources) <= set(sources())
    assert len({one.name for one in instances()}) == len(instances())


def test_no_row_has_a_unit_error() -> None:
    for one in instances():
        assert one.gpu_memory_gb in GPU_MEMORY_GB[one.gpu], one
        assert one.gpus in (1, 2, 4, 8)
        # providers sell 2 to 25 GiB a vCPU: GB for GiB is 7 % off and passes, MiB, TiB or a figure of one GPU does not
        assert 2 <= one.memory_gib / one.vcpus <= 25, one
        assert one.vcpus / one.gpus >= 4, one
        # in Gb/s: the smallest network of several GPUs is 10, the largest known 6,400; GB/s would be below
        assert one.network_gbit_per_s is None or 10 <= one.network_gbit_per_s <= 6400, one
        assert (one.gpus > 1) or one.link is None, one
        assert "SXM" not in one.gpu or one.gpus == 1 or one.link == "nvlink", one


@pytest.mark.parametrize(
    ("name", "gbit_per_s"),
    [
        ("p4d.24xlarge", 400), ("p4de.24xlarge", 400), ("p5.48xlarge", 3200), ("p5e.48xlarge", 3200), ("p5en.48xlarge", 3200),
        ("p6-b200.48xlarge", 3200), ("p6-b300.48xlarge", 6400), ("a3-highgpu-8g", 1000), ("a3-megagpu-8g", 1800),
        ("a4-highgpu-8g", 3600), ("Standard_ND96isr_H200_v5", 3200), ("Standard_ND96amsr_A100_v4", 1600), ("p3.16xlarge", None),
    ],
)  # fmt: skip
def test_the_network_of_machines_that_train_together_is_known(name: str, gbit_per_s: float | None) -> None:
    one = by_name(name)
    assert one is not None and one.network_gbit_per_s == gbit_per_s


def test_sizes_of_a_family_grow_together() -> None:
    for small in instances():
        for large in instances():
            alike = (small.provider, small.gpu, small.gpu_memory_gb) == (large.provider, large.gpu, large.gpu_memory_gb)
            if alike and small.gpus == large.gpus and small.vcpus < large.vcpus:
                assert small.memory_gib <= large.memory_gib, (small.name, large.name)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (
            {"gpu": "NVIDIA A100-SXM4-40GB", "gpus": 8, "gpu_memory_gib": 39.4, "vcpus": 96, "memory_gib": 1121.0},
            ["p4d.24xlarge"],
        ),
        ({"gpu": "NVIDIA A100-SXM4-80GB", "gpus": 8, "gpu_memory_gib": 79.3, "vcpus": 240}, ["gpu_8x_a100_80gb_sxm4"]),
        ({"gpu": "NVIDIA A10G", "gpus": 1, "gpu_memory_gib": 22.5, "vcpus": 8, "memory_gib": 30.9}, ["g5.2xlarge"]),
        ({"gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "link": "pcie"}, []),
        ({"gpu": "NVIDIA GeForce RTX 4090", "gpus": 1}, []),
        ({"gpu": "a name nobody knows", "gpus": 1}, []),
        ({"gpu": "NVIDIA A10G", "gpus": 3}, []),
    ],
)
def test_a_machine_is_known_by_what_it_holds(given: dict[str, Any], names: list[str]) -> None:
    assert [one.name for one in match(**given)] == names


def test_what_is_not_given_is_not_asked() -> None:
    names = {one.name for one in match("NVIDIA A100-SXM4-40GB", 8)}
    assert {"p4d.24xlarge", "a2-highgpu-8g", "Standard_ND96asr_v4"} < names


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"vcpus": 8, "memory_gib": 30.9}, ["g5.2xlarge"]),
        ({"vcpus": 6, "memory_gib": 30.9}, []),  # a part of some instance, and nobody knows of which
        ({"vcpus": 8, "memory_gib": None}, []),
        ({"vcpus": None, "memory_gib": 30.9}, []),
    ],
)
def test_a_machine_is_like_an_instance_only_where_more_than_the_gpus_fits(
    given: dict[str, Any], names: list[str]
) -> None:
    found = exactly("NVIDIA A10G", 1, gpu_memory_gib=22.5, link=None, **given)
    assert [one.name for one in found] == names


def test_two_instances_that_are_one_machine_are_both_named() -> None:
    found = exactly("NVIDIA H200", 8, gpu_memory_gib=139.8, link="nvlink", vcpus=192, memory_gib=2000.0)
    assert {one.name for one in found} == {"p5e.48xlarge", "p5en.48xlarge"}


@pytest.mark.parametrize(
    ("name", "gpu", "gpus"),
    [
        ("g6.48xlarge", "L4", 8),
        ("p5.4xlarge", "H100-SXM", 1),
        ("g2-standard-24", "L4", 2),
        ("Standard_NC64as_T4_v3", "T4", 4),
        ("Standard_NV36ads_A10_v5", "A10", 1),
        ("gpu_1x_h100_pcie", "H100-PCIe", 1),
    ],
)
def test_common_small_instances_are_in_the_table(name: str, gpu: str, gpus: int) -> None:
    found = by_name(name)
    assert found is not None and (found.gpu, found.gpus) == (gpu, gpus)


def test_a_part_of_an_instance_is_still_known_by_its_gpus_the_nearest_size_first() -> None:
    found = match("NVIDIA A10G", 1, vcpus=6)
    assert {one.name for one in found[:2]} == {"g5.xlarge", "g5.2xlarge"}


GIB = 2**30


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "p4d.24xlarge"),
        ({"memory_bytes": 640 * GIB}, "a2-highgpu-8g"),
        ({"vcpus": 95}, None),
        ({"memory_bytes": 500 * GIB}, None),
        ({"vcpus": None}, None),
        ({"gpu_memory_bytes": None}, None),
        ({"gpus": ["NVIDIA A100-SXM4-40GB"] * 7 + ["NVIDIA A10G"]}, None),
        ({"gpus": []}, None),
    ],
)
def test_an_instance_is_named_only_where_it_is_the_only_one(given: dict[str, Any], name: str | None) -> None:
    base = {
        "gpus": ["NVIDIA A100-SXM4-40GB"] * 8,
        "gpu_memory_bytes": 40 * GIB,
        "vcpus": 96,
        "memory_bytes": 1121 * GIB,
    }
    found = only_one(**{**base, **given})
    assert (found.name if found else None) == name


def test_names_are_found_however_they_are_written() -> None:
    found = by_name("standard_nd96asr_V4")
    assert found is not None and found.gpus == 8
    assert by_name("z9.mega") is None


@pytest.mark.parametrize(("gib", "named"), [(1121, "AWS p4d.24xlarge"), (931, None)])
def test_a_report_tells_which_instance_the_machine_is_like(gib: int, named: str | None) -> None:
    made = read_recording(Path(__file__).parents[3] / "samples/runs/throttled.tar.gz")
    total = made.samples["mem.total_bytes", "host"]
    samples = {
        **made.samples,
        ("mem.total_bytes", "host"): replace(total, value=np.full(total.value.shape, gib * GIB)),
    }
    told = diagnose(replace(made, samples=samples)).environment.get("instance_like")
    assert told is None if named is None else str(told).startswith(named)
