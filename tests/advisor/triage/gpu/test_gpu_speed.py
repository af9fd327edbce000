"""Speeds of GPUs, held against those that others have published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import Band
from rn50_advisor.advisor.triage.found_checks import Found, Remedy, judged
from rn50_advisor.advisor.triage.gpu import gpu_speed
from rn50_advisor.advisor.triage.gpu.all_gpus import beside_strangers, carrying, over_links_as_built
from rn50_advisor.advisor.triage.gpu.gpu_speed import MeasuredGpus
from rn50_advisor.advisor.triage.triage_runner import conclude

H100: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "uuid": "", "index": 0}


def result(name: str, value: float | None, gpu: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "gpu": gpu, "value": value, "unit": "GB/s", **more}


@pytest.mark.parametrize(
    ("measured", "state"),
    [
        (result("hbm_gb_per_s", 2175.0), "ok"),  # 0.75 of 2,900: on the line
        (result("hbm_gb_per_s", 2174.0), "bad"),
        (result("hbm_gb_per_s", 1200.0), "bad"),
        (result("h2d_pinned_gb_per_s", 36.0), "ok"),
        (result("h2d_pinned_gb_per_s", 24.0), "bad"),  # as one generation of PCIe less
        (result("d2h_pinned_gb_per_s", 24.0), "low"),
        (result("h2d_pageable_gb_per_s", 5.0), "ok"),  # nobody has published what to expect
        (result("matmul_bf16_tflop_per_s", 700.0), "ok"),
        (result("matmul_bf16_tflop_per_s", 400.0), "bad"),
        (result("matmul_fp16_tflop_per_s", 595.0), "bad"),
        (result("matmul_tf32_tflop_per_s", 300.0), "ok"),  # 0.6 of the vendor's 494.7
        (result("matmul_tf32_tflop_per_s", 290.0), "low"),
        (result("matmul_tf32_tflop_per_s", 140.0), "bad"),
        (result("matmul_fp32_tflop_per_s", 21.0), "ok"),  # 0.3 of 67
        (result("matmul_fp32_tflop_per_s", 20.0), "low"),
        (result("sustained_tflop_per_s", 507.0), "ok"),  # 0.75 × 0.85 of 794.5
        (result("sustained_tflop_per_s", 506.0), "bad"),
    ],
)
def test_a_gpu_is_held_against_published_ones(measured: dict[str, Any], state: str) -> None:
    (found,) = gpu_speed.speeds(MeasuredGpus([{"name": "devices", "value": [H100]}, measured]), ())
    assert isinstance(found, Found) and found.check.state == state
    assert found.check.name == f"gpu.0.{measured['name']}"


def test_an_unknown_gpu_is_measured_and_not_judged() -> None:
    devices = {"name": "devices", "value": [{"name": "NVIDIA Something New", "uuid": "", "index": 0}]}
    (found,) = gpu_speed.speeds(MeasuredGpus([devices, result("hbm_gb_per_s", 1.0)]), ())
    assert isinstance(found, Found) and found.check.state == "ok" and found.check.expected.lo is None


def test_clocks_that_fall_under_load_are_the_owners() -> None:
    for share, state in ((0.85, "ok"), (0.84, "low"), (0.71, "low"), (0.69, "bad"), (0.5, "bad")):
        held = result("sustained_tflop_per_s", 700.0, share=share, seconds=30)
        items = gpu_speed.speeds(MeasuredGpus([{"name": "devices", "value": [H100]}, held]), ())
        found = {one.check.name: one for one in items if isinstance(one, Found)}
        assert found["gpu.0.sustained_tflop_per_s"].check.state == "ok"
        assert found["gpu.0.sustained_share"].check.state == state
        assert found["gpu.0.sustained_share"].remedy == "hand-back"
        assert conclude(list(found.values())).verdict.state == ("hand-back" if state == "bad" else "keep")


@pytest.mark.parametrize(
    ("gpus", "size", "rate", "state"),
    [
        (8, 1 << 30, 278, "ok"),  # 0.75 of the ring's 370
        (8, 1 << 30, 277, "bad"),
        (8, 1 << 30, 110, "bad"),
        (8, 1 << 20, 3, "ok"),
        (4, 1 << 30, 100, "ok"),
    ],
)
def test_only_large_reductions_over_eight_gpus_can_be_compared(gpus: int, size: int, rate: float, state: str) -> None:
    devices = {"name": "devices", "value": [{**H100, "index": index} for index in range(gpus)]}
    (found,) = gpu_speed.speeds(MeasuredGpus([devices, result("allreduce_gb_per_s", rate, bytes=size, gpus=gpus)]), ())
    assert isinstance(found, Found) and found.check.state == state


def test_what_torch_could_not_do_is_a_gap_in_its_words() -> None:
    (gap,) = gpu_speed.speeds(
        MeasuredGpus([result("matmul_bf16_tflop_per_s", None, reason="RuntimeError: not for this GPU")]), ()
    )
    assert not isinstance(gap, Found) and gap.reason == "RuntimeError: not for this GPU"


def test_what_a_stranger_on_the_gpu_slows_proves_nothing() -> None:
    devices = {"name": "devices", "value": [H100, {**H100, "index": 1}]}
    slow = [result("hbm_gb_per_s", 1000.0, gpu=0), result("hbm_gb_per_s", 1000.0, gpu=1)]
    stranger = judged("gpu.0.foreign_processes", 1.0, "processes", Band(None, 0.0), remedy="fix", strict=True)
    on_first = [replace(stranger, gpus=(0,))]
    items = list(beside_strangers(gpu_speed.speeds(MeasuredGpus([devices, *slow]), ()), on_first))
    assert [one.check.state for one in items if isinstance(one, Found)] == ["unknown", "bad"]
    alone = list(beside_strangers(gpu_speed.speeds(MeasuredGpus([devices, *slow]), ()), []))
    assert [one.check.state for one in alone if isinstance(one, Found)] == ["bad", "bad"]


@pytest.mark.parametrize(
    ("rate", "remedy", "copies"),
    [(12.0, "note", "note"), (5.0, "note", "hand-back"), (12.0, "hand-back", "hand-back")],
)
def test_copies_over_a_link_that_all_gpus_have_alike_are_a_note_where_they_fill_it(
    rate: float, remedy: Remedy, copies: Remedy
) -> None:
    devices = {"name": "devices", "value": [H100]}
    link = judged("gpu.0.pcie_link_gb_per_s", 13.0, "GB/s", Band(19.5, None), remedy=remedy, strict=True)
    measured = gpu_speed.speeds(MeasuredGpus([devices, result("h2d_pinned_gb_per_s", rate)]), ())
    (found,) = [one for one in over_links_as_built(measured, [replace(link, gpus=(0,))]) if isinstance(one, Found)]
    assert found.check.state == "bad" and found.remedy == copies


def test_a_link_of_two_generations_less_gives_the_machine_back_though_it_calls_itself_sound() -> None:
    devices = {"name": "devices", "value": [H100]}
    slow = list(gpu_speed.speeds(MeasuredGpus([devices, result("h2d_pinned_gb_per_s", 24.0)]), ()))
    assert conclude(slow).verdict.state == "hand-back"
    assert "GPU 0: 24 GB/s where at least 36 are usual" in conclude(slow).verdict.reasons[0]
    back = list(gpu_speed.speeds(MeasuredGpus([devices, result("d2h_pinned_gb_per_s", 6.3)]), ()))
    verdict = conclude(back).verdict
    assert verdict.state == "keep", "a sound machine of a large provider was seen to copy so slowly to the host"
    assert any(reason.startswith("worth noting: GPU 0: 6.3") for reason in verdict.reasons)


def test_copies_as_fast_as_expected_name_their_gpu() -> None:
    devices = {"name": "devices", "value": [H100, {**H100, "index": 1}, {**H100, "index": 2}]}
    rates = [result("h2d_pinned_gb_per_s", rate, gpu=index) for index, rate in enumerate((50.0, 30.0))]
    items = [*gpu_speed.speeds(MeasuredGpus([devices, *rates, result("h2d_pageable_gb_per_s", 9.0, gpu=2)]), ())]
    assert carrying(items) == {0}
