"""Achieved TFLOP/s and model FLOP utilisation: of a known model, of a counted one, beside the peak and beside others."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from deep_events import deep_window, event
from gpu_rank_facts import A100, CONV, FACTS, RESNET50
from recordings import plan, recording
from rn50_advisor.advisor.analysis.gpu.achieved_flops import roofline
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.gpu.roofline import roofline_rows


def analysed(facts=FACTS, *, ranks: int = 1, samples: int = 256, window=None):
    """A step of 100 ms: 2560 samples a second of each rank."""
    rank_facts = {100 + rank: {**facts, "rank": rank} for rank in range(ranks)}
    events = (event(window),) if window is not None else ()
    return analyse(recording({rank: plan(samples=samples) for rank in range(ranks)}, facts=rank_facts, events=events))


def roofline_of(facts):
    """The roofline of these facts, also rendered where a report has nothing to show."""
    made = recording({0: plan(samples=256)}, facts={100: facts})
    return roofline(made, (), analyse(made).values)


def test_a_known_model_on_a_known_gpu() -> None:
    found = analysed()
    assert found.value("roofline.flops_per_sample", 0) == pytest.approx(24.5e9, rel=0.01)
    assert found.value("roofline.tflops", 0) == pytest.approx(62.8, rel=0.01)
    roofline = found.facts["roofline"]
    assert roofline["precision"] == "bf16" and roofline["peak_tflops"] == 312
    assert found.value("roofline.mfu", 0) == pytest.approx(62.8 / 312, rel=0.01)
    # 1450 to 2470 images/s on one A100 under AMP, and 3410 tuned
    assert roofline["reference"] == pytest.approx((35.6, 60.6), rel=0.01)
    assert roofline["tuned"] == pytest.approx((83.7, 83.7), rel=0.01)


@pytest.mark.parametrize(("learn", "known"), [(25_557_032, True), (2_049_000, False)])
def test_a_frozen_backbone_is_not_charged_as_if_it_learned(learn: int, known: bool) -> None:
    work = [[3, 7, 1, 1000], [40, learn, 1, 1000]]  # the last look counts
    found = analysed({**FACTS, "work": work})
    assert (found.get("roofline.mfu", 0) is not None) is known
    counted = analysed({**FACTS, "work": work}, window=replace(deep_window(), flops=256 * 8e9))
    assert counted.facts["roofline"]["source"] == ("table" if known else "window")


def test_of_several_ranks_each_has_its_share() -> None:
    found = analysed(ranks=2)
    assert found.value("roofline.tflops", 0) == pytest.approx(62.8, rel=0.01)
    lo, hi = found.facts["roofline"]["reference"]
    assert 0.8 * 35.6 <= lo < 36 and hi == pytest.approx(60.6, rel=0.01)


def test_of_several_gpus_that_one_rank_drives_the_peaks_add_up() -> None:
    parallel = {**FACTS, "data_parallel": [{"devices": 4, "file": "train.py", "line": 3}]}
    alone, four = analysed(), analysed(parallel)
    assert four.value("roofline.tflops", 0) == alone.value("roofline.tflops", 0)
    assert four.value("roofline.mfu", 0) == pytest.approx(alone.value("roofline.mfu", 0) / 4)
    assert four.facts["roofline"]["reference"][1] == pytest.approx(4 * 60.6, rel=0.01), "of four GPUs, as this rank has"
    reached = dict(roofline_rows(four.facts))["reached"]
    assert "of one rank on 4 GPUs" in reached and "of 4 × 312 TFLOP/s" in reached


def test_ranks_that_share_a_gpu_have_a_part_of_one() -> None:
    shared = {**FACTS, "cuda": {**A100, "uuid": "aaaa"}}
    lo, hi = analysed(shared, ranks=2).facts["roofline"]["reference"]
    assert (lo, hi) == pytest.approx((35.6 / 2, 60.6 / 2), rel=0.01)


@pytest.mark.parametrize(
    ("change", "precision", "peak"),
    [
        ({"conv": {**CONV, "autocast": "float16"}}, "fp16", 312),
        ({"conv": {**CONV, "autocast": None}}, "tf32", 156),
        ({"conv": {**CONV, "autocast": None}, "cuda": {**A100, "tf32_cudnn": False}}, "fp32", 19.5),
        ({"conv": None}, "", None),
    ],
)
def test_the_peak_is_that_of_the_precision(change, precision: str, peak: float | None) -> None:
    found = asdict(roofline_of({**FACTS, **change}))
    assert (found["precision"], found["peak_tflops"]) == (precision, peak)


def test_an_unknown_gpu_has_no_peak_and_an_unknown_model_no_flops() -> None:
    unknown = analysed({**FACTS, "cuda": {**A100, "name": "NVIDIA Z1"}})
    assert unknown.get("roofline.tflops", 0) and unknown.get("roofline.mfu", 0) is None
    other = analysed({**FACTS, "optimizer": {**RESNET50, "elements": 7}})
    assert other.get("roofline.tflops", 0) is None and "roofline" not in other.facts


def test_without_a_table_flops_come_from_the_deep_window() -> None:
    window = deep_window()
    unknown = {name: value for name, value in FACTS.items() if name != "optimizer"}
    found = analysed(unknown, samples=32, window=window)
    assert found.value("roofline.flops_per_sample", 0) == pytest.approx(window.flops / 32)
    assert found.facts["roofline"]["source"] == "window" and found.facts["roofline"]["precision"] == "bf16"
    both = analysed(samples=32, window=window)
    assert both.facts["roofline"]["source"] == "table"
    assert both.facts["roofline"]["counted_per_sample"] == pytest.approx(window.flops / 32)


@pytest.mark.parametrize(
    ("name", "peak"), [("NVIDIA H100 80GB HBM3", 1979), ("NVIDIA A100-SXM4-80GB", None), ("NVIDIA L20", None)]
)
def test_kernels_in_fp8_stand_beside_the_peak_in_fp8_where_it_is_known(name: str, peak: float | None) -> None:
    window = replace(deep_window(), precision="fp8")
    found = analysed({**FACTS, "cuda": {**A100, "name": name}}, samples=32, window=window).facts["roofline"]
    assert (found["precision"], found["peak_tflops"]) == ("fp8", peak)
    rows = dict(roofline_rows({"roofline": found}))
    assert ("in FP8" in rows["reached"]) == (peak is not None)


def test_of_a_cpu_only_what_was_asked_for_is_shown() -> None:
    on_cpu = {**FACTS, "cuda": None}
    found = analysed(on_cpu)
    assert found.value("roofline.tflops", 0) > 0 and found.get("roofline.mfu", 0) is None
    assert "roofline" not in found.facts
    assert "roofline" in analysed(on_cpu, window=replace(deep_window(), device="cpu")).facts
