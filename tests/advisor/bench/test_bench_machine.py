"""The devices that torch names, and the settings that are usual on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench_samples import PLAN, machine_that, saturating
from rn50_advisor.advisor.bench.bench_machine import (
    parse_devices,
    possible_precisions,
    precisions_of,
    usual_batch,
    usual_batches,
    usual_devices,
)
from rn50_advisor.advisor.bench.bench_plan import carry_out
from rn50_advisor.advisor.model.errors import UsageError


def probed(**given: Any) -> dict[str, Any]:
    versions = {"torch": "2.9", "torchvision": "0.24", "cuda": "12.8", "models": ["resnet50"], "bf16_units": False}
    return {"names": [], "capability": None, "memory_bytes": [], **versions, **given}


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ((6, 1), ("fp32",)),
        ((7, 0), ("fp32", "fp16")),
        ((8, 0), ("fp32", "tf32", "bf16", "fp16")),
        ((9, 0), ("fp32", "tf32", "bf16", "fp16")),
    ],
)
def test_a_device_is_asked_for_what_it_has_units_for(capability: tuple[int, int], precisions: tuple[str, ...]) -> None:
    found = parse_devices(probed(names=["GPU"], capability=list(capability), memory_bytes=[1]), "auto")
    assert found.device == "cuda" and precisions_of(found) == precisions


def test_without_a_gpu_the_cpu_trains_and_only_where_it_may() -> None:
    found = parse_devices(probed(), "auto")
    assert found.device == "cpu" and precisions_of(found) == ("fp32",)
    assert possible_precisions(found) == ("fp32", "bf16"), "slow, but somebody may want to know how slow"
    assert precisions_of(parse_devices(probed(bf16_units=True), "auto")) == ("fp32", "bf16")
    assert parse_devices(probed(names=["GPU"], capability=[9, 0], memory_bytes=[1]), "cpu").names == ()
    with pytest.raises(UsageError, match="no CUDA device"):
        parse_devices(probed(), "cuda")


def test_usual_settings() -> None:
    assert usual_batch("cuda", 224) == 256 and usual_batch("cpu", 224) == 8
    assert usual_batch("cuda", 32) == 8192 and usual_batch("cpu", 32) == 128
    assert usual_batches("cuda", 256, quick=True) == (128, 256, 512)
    assert usual_batches("cpu", 1, quick=True) == (1, 2)
    assert usual_devices(8, quick=False) == (1, 2, 4, 8) and usual_devices(6, quick=False) == (1, 2, 4, 6)
    assert usual_devices(8, quick=True) == (1, 8) and usual_devices(1, quick=True) == (1,)


def test_a_sweep_on_a_gpu_goes_on_until_memory_ends() -> None:
    """Small pictures fit by the hundred thousand into a large one."""
    batches = usual_batches("cuda", 256, quick=False)
    plan = replace(PLAN, devices=(1,), precisions=("fp32",), layouts=(True,), batch=256, batches=batches)
    cells = carry_out(plan, machine_that(saturating, fits=200_000))
    assert [one.setting.batch for one in cells if one.state == "oom"] == [262_144]
    assert usual_batches("cpu", 8, quick=False) == (2, 4, 8, 16, 32)
