"""A job's throughput beside published results: for its model, its number of GPUs and its precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpu_rank_facts import CONV, PICTURES
from gpu_rank_facts import FACTS as RANK_FACTS
from recordings import gpu_steps, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Budget
from rn50_advisor.advisor.reference.training_speeds import poorest_scaling

ONE_A100 = 2470.0  # images/s under AMP in channels-last with 256 images per GPU, by NVIDIA
MADE = 256 / 0.09  # images/s of a rank outside of its wait for input
LAST = {"input_layout": "channels_last", "weight_layout": "channels_last"}
FACTS: dict[str, Any] = {**RANK_FACTS, "conv": {**CONV, **LAST}}
STEPPED = {**FACTS["optimizer"], "convolutions": {"weights": 53, "channels_last": 53}}
COMPILED = {
    **FACTS,
    "conv": None,
    "optimizer": STEPPED,
    "compiled_frames": 3,
    "autocast": {"enabled": True, "device": "cuda", "dtype": "bfloat16"},
}


def compared(facts: dict[str, Any], ranks: int = 1, uuids: tuple[str, ...] = (), samples: int = 256) -> Analysis:
    rank_facts = {}
    for rank in range(ranks):
        cuda = {**facts["cuda"], "uuid": uuids[rank]} if uuids else facts["cuda"]
        rank_facts[100 + rank] = {**facts, "cuda": cuda, "rank": rank}
    return analyse(recording({rank: plan(samples=samples) for rank in range(ranks)}, facts=rank_facts))


def rates(found: Analysis) -> tuple[float | None, float | None]:
    return found.get("reference.images_per_s"), found.get("reference.observed_images_per_s")


@pytest.mark.parametrize(
    ("facts", "ranks", "uuids", "gpus"),
    [
        pytest.param(FACTS, 1, (), 1, id="one"),
        pytest.param(FACTS, 2, ("aa", "bb"), 2, id="each on its own"),
        pytest.param(FACTS, 2, ("aa", "aa"), 1, id="two on one"),
        pytest.param(FACTS, 2, (), 2, id="an older torch reports no names"),
        pytest.param({**FACTS, "data_parallel": [{"devices": 4}]}, 1, ("aa",), 4, id="DataParallel over four"),
    ],
)
def test_the_reference_is_of_as_many_gpus_as_the_job_has(
    facts: dict[str, Any], ranks: int, uuids: tuple[str, ...], gpus: int
) -> None:
    replicas = facts.get("data_parallel", [{"devices": 1}])[0]["devices"]
    usual, observed = rates(compared(facts, ranks, uuids, samples=256 * replicas))
    assert observed == pytest.approx(ranks * replicas * MADE, rel=0.01)
    if gpus == 1:
        assert usual == ONE_A100
    else:
        assert usual is not None and gpus * ONE_A100 * poorest_scaling() <= usual <= gpus * ONE_A100


def test_a_compiled_model_is_known_by_its_parameters_and_its_pictures() -> None:
    found = compared(COMPILED)
    assert found.by_rank("precision.half") == {0: 1.0}
    assert rates(found) == (ONE_A100, pytest.approx(MADE, rel=0.01))


def test_replicas_without_parameters_are_known_by_what_the_optimizer_steps() -> None:
    replica = {"layers": {"Conv2d": 53, "Linear": 1}, "parameters": 0}
    made = {**FACTS, "model": replica, "linear": {"weight": "float32", "weight_shape": [1000, 2048]}}
    assert rates(compared({**made, "data_parallel": [{"devices": 1}]})) == rates(compared(FACTS))


FIRST = {"input_layout": "channels_first", "weight_layout": "channels_first"}


def test_a_job_in_another_layout_or_with_another_batch_is_compared_with_its_like_or_not_at_all() -> None:
    first = {**FACTS, "conv": {**CONV, **FIRST}}
    for facts, samples, usual in ((FACTS, 256, 2470), (FACTS, 128, None), (first, 256, None), (first, 720, 1455)):
        found = compared(facts, samples=samples)
        assert rates(found)[0] == usual and (found.published is not None) == (usual is not None)
        if usual is None:
            why = found.missing["reference.images_per_s"]
            assert f"{samples} images per GPU" in why and "256 images in channels-last" in why


def test_the_job_is_told_which_row_it_is_compared_with() -> None:
    published = compared(FACTS).published
    assert published is not None and not published.scaled
    assert published.words.startswith(
        "resnet50: 2470 images/s on 1 × A100-SXM, amp, channels-last, 256 images per GPU (NVIDIA"
    )
    four = compared(FACTS, ranks=4).published
    assert four is not None and four.scaled and "multiplied" in four.words


def test_the_batch_of_a_job_that_accumulates_gradients_is_that_of_one_pass() -> None:
    steps = plan(samples=512, micro_batches=2)
    found = analyse(recording({0: steps}, facts={100: FACTS}))
    assert found.published is not None and found.published.batch_per_gpu == 256


def test_a_run_that_ends_in_its_first_step_has_no_published_speed() -> None:
    ended = {**FACTS, "optimizer": None, "exception": {"type": "OutOfMemoryError"}}
    assert analyse(recording({0: plan(1)}, facts={100: ended})).published is None


def test_the_ceiling_is_of_the_same_batch_too() -> None:
    assert compared(FACTS).get("reference.tuned_images_per_s") is None  # NVIDIA's has 512 images per GPU
    h100 = {**FACTS, "cuda": {**FACTS["cuda"], "name": "NVIDIA H100 80GB HBM3"}}
    assert compared(h100, ranks=8, samples=400).published is None, "a ceiling alone is no reference"


def test_a_layout_that_the_compiler_chose_is_like_no_row() -> None:
    unknown = {**COMPILED, "optimizer": RANK_FACTS["optimizer"]}
    found = compared(unknown)
    assert rates(found) == (None, None) and "layout" in found.missing["reference.images_per_s"]


BERT: dict[str, Any] = {
    "rank": 0,
    "cuda": {"name": "NVIDIA GeForce RTX 4090", "capability": [8, 9], "tf32_matmul": True},
    "linear": {"weight": "float32", "autocast": "float16", "weight_shape": [1024, 1024]},
    "model": {
        "class": "transformers.models.bert.modeling_bert.BertForQuestionAnswering",
        "parameters": 334_094_338,
        "layers": {"Linear": 145, "LayerNorm": 49, "Embedding": 3},
    },
    "padding": {"looks": 4, "cells": 4 * 28 * 384, "tokens": 4 * 28 * 300, "longest": 4 * 28 * 384},
}


def test_bert_is_compared_by_its_sequences() -> None:
    found = compared(BERT, samples=28)
    assert rates(found) == (93.0, pytest.approx(28 / 0.09, rel=0.01))
    assert found.published is not None and found.published.samples == "sequences"


@pytest.mark.parametrize(
    ("change", "samples", "why"),
    [
        ({"padding": {**BERT["padding"], "cells": 4 * 64 * 384}}, 64, "measured there: 28 sequences"),
        ({"padding": None}, 28, "size of the sequences"),
        ({"padding": {**BERT["padding"], "cells": 4 * 28 * 128}}, 28, "size of the sequences"),
        ({"model": {**BERT["model"], "class": "BertForMaskedLM"}}, 28, "not in the reference table"),
        ({"model": {**BERT["model"], "parameters": 355_000_000}}, 28, "not in the reference table"),
        ({"model": {**BERT["model"], "layers": {"Linear": 150, "LayerNorm": 49}}}, 28, "not in the reference table"),
        ({"cuda": {**BERT["cuda"], "name": "NVIDIA L4"}}, 28, "no source has measured bert-large at 384 tokens"),
    ],
)
def test_another_transformer_batch_or_length_has_no_reference(change: dict[str, Any], samples: int, why: str) -> None:
    found = compared({**BERT, **change}, samples=samples)
    assert rates(found) == (None, None) and why in found.missing["reference.images_per_s"]


@pytest.mark.parametrize(
    "change",
    [
        {"pictures": None},
        {"pictures": {**PICTURES, "shape": [256, 3, 224, 160]}},
        {"optimizer": {"parameters": 161, "elements": 25_028_904}},  # ResNeXt50
        {"autocast": None},
    ],
)
def test_without_one_of_these_there_is_nothing_to_compare_with(change: dict[str, Any]) -> None:
    found = compared({**COMPILED, **change})
    assert rates(found) == (None, None) and "was not observed" in found.missing["reference.images_per_s"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_frozen_backbone_is_not_compared_with_those_that_learned(compiled: bool) -> None:
    layers = {"model": {"layers": {"Conv2d": 53}, "parameters": 25_557_032}, "linear": {"weight_shape": [1000, 2048]}}
    whole = COMPILED if compiled else {**FACTS, **layers}
    frozen = {**whole, "work": [[3, 2_049_000, 1, 1000]]}
    assert rates(compared(whole))[0] == ONE_A100 and rates(compared(frozen)) == (None, None)


def test_the_first_convolutions_image_size_takes_precedence_over_the_loaders() -> None:
    small = {**FACTS, "conv": {**CONV, "shape": [256, 3, 64, 64]}}
    assert rates(compared(small)) == (None, None)


STEPS = 40
# The host launches in 20 + 30 + 5 ms of a step and waits 4 for a batch.
HOST = {"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1}


def job(gpu: Mapping[str, float], host: Mapping[str, float] | None = None, **more: Any) -> Recording:
    return recording({0: plan(STEPS, samples=256, **(host or HOST))}, gpu_steps={0: gpu_steps([gpu] * STEPS)}, **more)


RESNET50 = {
    "cuda": {"name": "NVIDIA A100-SXM4-40GB", "capability": [8, 0], "tf32_cudnn": True},
    "conv": {"autocast": "bfloat16", "weight": "float32", "shape": [256, 3, 224, 224], **LAST},
    "linear": {"autocast": "bfloat16", "weight": "float32", "weight_shape": [1000, 2048]},
    "model": {"layers": {"Conv2d": 53, "Linear": 1}, "parameters": 25_557_032},
}


def references(**changes: Any) -> tuple[dict[str, float], dict[str, str]]:
    made = analyse(job(HOST, facts={100: {**RESNET50, **changes}}))
    return {name: v for (name, _), v in made.values.items() if name.startswith("reference.")}, dict(made.missing)


def test_a_known_model_on_a_known_gpu_has_a_reference() -> None:
    found, _ = references()
    assert found["reference.images_per_s"] == ONE_A100
    # 256 images in a step without its wait for input and its gap
    assert found["reference.observed_images_per_s"] == pytest.approx(256 / 0.055, rel=0.01)


def test_tf32_is_compared_with_tf32() -> None:
    plain = {
        "conv": {**RESNET50["conv"], **FIRST, "autocast": None},
        "linear": {**RESNET50["linear"], "autocast": None},
    }
    assert references(**plain)[0]["reference.images_per_s"] == 925


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"model": {"layers": {"Conv2d": 53}, "parameters": 25_028_904}},
            "the model is not in the reference table",
        ),  # ResNeXt50
        ({"conv": {**RESNET50["conv"], "shape": [256, 3, 32, 32]}}, "no source has measured"),
        ({"cuda": {**RESNET50["cuda"], "name": "NVIDIA GeForce GT 710"}}, "no source has measured"),
    ],
)
def test_anything_else_has_none_and_says_why(changes: dict[str, Any], why: str) -> None:
    found, missing = references(**changes)
    assert not found and why in missing["reference.images_per_s"]


def test_stalls_alone_leave_nothing_to_compare() -> None:
    from rn50_advisor.advisor.analysis.gpu.published_speeds import reference_values

    made = job(HOST, facts={100: RESNET50})
    values = {("step.samples", "job"): 8.0, ("step.time_s", "job"): 0.06, ("precision.half", 0): 1.0}
    found = reference_values(made, Budget({"input_wait": 0.06}, {0: {}}), Measured(values))
    assert ("reference.observed_images_per_s", "job") not in found
