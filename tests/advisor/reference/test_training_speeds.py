"""The reference table: known rows, sane numbers, names of devices, and no answer where nobody has measured."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.peaks.gpu_peaks import peak
from rn50_advisor.advisor.reference.gpu_names import known_models
from rn50_advisor.advisor.reference.training_speeds import (
    Likeness,
    band,
    matching,
    poorest_scaling,
    precision_of,
    rows,
    sources,
)


def test_every_row_names_a_known_gpu_and_a_source_and_has_a_number() -> None:
    for row in rows():
        assert row.gpu in known_models()
        assert row.source in sources()
        assert 0 < row.samples_per_s[0] <= row.samples_per_s[1]
        assert (row.tier == "course") == (row.source == "course")


def test_no_row_claims_what_no_gpu_does() -> None:
    """ResNet50 is 24.6 GFLOP an image in training: 10,000 images/s of one GPU would be 246 TFLOP/s, beyond every known run.

    A sequence of 384 tokens takes six operations for each of 110 or 335 million parameters and token, and more for its attention.
    """
    for row in rows():
        if row.model != "resnet50":
            flops = 6 * 384 * {"bert-base": 85e6, "bert-large": 302e6}[row.model]
            assert row.size == 384 and 5e12 <= row.samples_per_s[0] * flops <= 0.6e12 * peak(row.gpu).tflops["fp16"], (
                row
            )
            continue
        assert 40 <= row.samples_per_s[0] / row.gpus <= 10_000, row


def test_more_gpus_are_faster_and_never_more_than_as_many_times() -> None:
    for one in rows():
        for many in rows():
            same = [(r.model, r.gpu, r.precision, r.channels_last, r.batch_per_gpu, r.source) for r in (one, many)]
            if one.gpus < many.gpus and same[0] == same[1] and one.tier != "course":
                assert (
                    0.5 < many.samples_per_s[0] / one.samples_per_s[0] / (many.gpus / one.gpus) <= 1.002
                )  # MLPerf's machines differ


def test_what_is_tuned_is_faster_than_what_is_typical() -> None:
    for tuned in (row for row in rows() if row.tier == "tuned"):
        typical = band(tuned.gpu, gpus=tuned.gpus, precision=tuned.precision)
        assert typical is None or tuned.samples_per_s[0] > typical.hi


@pytest.mark.parametrize(
    ("device", "gpus", "precision", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", 1, "bf16", (1450, 2470)),
        ("NVIDIA A100-SXM4-40GB", 8, "fp16", (10745, 16621)),
        ("NVIDIA A100-SXM4-40GB", 1, "tf32", (925, 1066)),
        ("Tesla V100-SXM2-16GB", 1, None, (367, 370)),
        ("Tesla V100-SXM2-16GB", 32, "amp", (21260, 21260)),
    ],
)
def test_a_band_spans_the_sources(device: str, gpus: int, precision: str | None, expected: tuple[int, int]) -> None:
    found = band(device, gpus=gpus, precision=precision)
    assert found is not None and (found.lo, found.hi) == expected and not found.scaled
    assert found.source


def test_a_number_of_gpus_that_nobody_measured_is_one_gpu_multiplied() -> None:
    found = band("A100-SXM", gpus=4, precision="amp")
    assert found is not None and found.scaled
    assert (found.lo, found.hi) == (pytest.approx(4 * 1450 * poorest_scaling()), 4 * 2470)
    assert poorest_scaling() == pytest.approx(0.841, abs=0.001)


@pytest.mark.parametrize(
    ("device", "gpus", "precision", "other"),
    [
        ("NVIDIA GeForce RTX 3090 Ti", 1, "amp", {}),
        ("A100-SXM", 16, "amp", {}),
        ("A100-SXM", 1, "fp32", {}),  # only the course has a number for it, and that is no threshold
        ("H100-SXM", 1, "fp8", {}),
        ("A100-SXM", 1, "amp", {"size": 32}),
        ("A100-SXM", 1, "amp", {"model": "vgg19"}),
    ],
)
def test_there_is_no_band_where_nobody_measured(
    device: str, gpus: int, precision: str, other: dict[str, object]
) -> None:
    assert band(device, gpus=gpus, precision=precision, **other) is None  # type: ignore[arg-type]


def test_the_course_is_shown_and_is_no_band() -> None:
    tiers = {row.tier for row in matching("A100-SXM", gpus=1, precision="amp")}
    assert tiers == {"typical", "tuned", "course"}
    found = band("A100-SXM", gpus=1, precision="amp")
    assert found is not None and all(row.tier == "typical" for row in found.rows)


def test_an_unknown_precision_is_an_error() -> None:
    with pytest.raises(ValueError, match="int8"):
        precision_of("int8")


@pytest.mark.parametrize(
    ("like", "rates"),
    [
        (Likeness(channels_last=True, batch_per_gpu=256), {2470}),
        (Likeness(channels_last=True, batch_per_gpu=320), {2470}),
        (Likeness(channels_last=False, batch_per_gpu=720), {1455}),
        (Likeness(channels_last=False, batch_per_gpu=1280), {1582}),
        (Likeness(channels_last=False, batch_per_gpu=256), set()),  # one source has this batch and states no layout
        (Likeness(channels_last=True, batch_per_gpu=128), set()),
        (Likeness(channels_last=True, batch_per_gpu=321), set()),
    ],
)
def test_only_rows_of_the_same_layout_and_about_the_same_batch_are_like_a_job(like: Likeness, rates: set[int]) -> None:
    found = band("A100-SXM", gpus=1, precision="amp", like=like)
    assert {row.samples_per_s[0] for row in (found.rows if found else ())} == rates


def test_a_transformer_is_compared_by_its_batch_and_has_no_layout() -> None:
    like = Likeness(channels_last=None, batch_per_gpu=28)
    found = band("NVIDIA GeForce RTX 4090", gpus=1, precision="fp16", model="bert-large", size=384, like=like)
    assert found is not None and (found.lo, found.hi) == (93, 93)
    assert band("NVIDIA L4", gpus=1, precision="fp16", model="bert-large", size=384) is None, "no source has one"


@pytest.mark.parametrize(("device", "gpus"), [("NVIDIA L40S", 8), ("NVIDIA H200", 8)])
def test_a_ceiling_may_stand_without_a_typical_rate(device: str, gpus: int) -> None:
    tuned = band(device, gpus=gpus, precision="amp", tier="tuned")
    assert tuned is not None and {row.source for row in tuned.rows} == {"mlperf-4.0"}
