"""The reading of CUDA_VISIBLE_DEVICES, and the two names that a GPU has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice, MigInstance
from rn50_advisor.probes.host.gpu.gpu_visibility import same_uuid, visible_devices


def gpu(index: int, name: str = "H100", mig: tuple[str, ...] = ()) -> GpuDevice:
    instances = tuple(MigInstance(uuid, "1g", None) for uuid in mig)
    return GpuDevice(index, name, f"GPU-{index}abc-{index}", f"{index}:00.0", 1, bool(mig), instances)


FOUR = [gpu(0), gpu(1), gpu(2), gpu(3, mig=("MIG-3a", "MIG-3b"))]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, (0, 1, 2, 3)),
        ("", ()),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 3 ", (1, 3)),
        ("0,1,9,2", (0, 1)),
        ("1,-1,2", (1,)),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1,1", ()),
        ("1gpu,2", (1, 2)),
        ("GPU-2abc-2", (2,)),
        ("GPU-3,GPU-0abc", (3, 0)),
        ("GPU-", ()),
        ("GPU-1,GPU-1abc", ()),
        ("GPU-1,GPU-9,GPU-2", (1,)),
        ("MIG-3b", (3,)),
        ("MIG-GPU-2abc-2/7/0", (2,)),
        ("MIG-9", ()),
    ],
)
def test_the_devices_of_a_rank(setting: str | None, expected: tuple[int, ...]) -> None:
    environment = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert visible_devices(environment, FOUR) == expected


def test_an_ambiguous_uuid_prefix_ends_the_list() -> None:
    twins = [gpu(0), replace(gpu(1), uuid="GPU-0abd-1")]
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-0ab"}, twins) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-0abd"}, twins) == (1,)


def test_ordinals_among_different_gpus_are_known_only_in_bus_order() -> None:
    mixed = [gpu(0, "RTX 3060"), gpu(1, "RTX 4090")]
    assert visible_devices({}, mixed) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1"}, mixed) is None
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}, mixed) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed) == (1,)
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-1"}, mixed) == (1,)


def test_devices_that_the_driver_could_not_describe_keep_their_numbers() -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "1"}, [gpu(0), gpu(2)]) == (2,)


@pytest.mark.parametrize(
    ("cuda", "nvml", "same"),
    [
        ("0abc-1", "GPU-0abc-1", True),
        ("GPU-0ABC-1", "GPU-0abc-1", True),
        ("0abc-1", "MIG-0abc-1", True),
        ("0abc-2", "GPU-0abc-1", False),
        ("", "", False),
    ],
)
def test_cuda_names_a_gpu_without_its_prefix(cuda: str, nvml: str, same: bool) -> None:
    assert same_uuid(cuda, nvml) == same
