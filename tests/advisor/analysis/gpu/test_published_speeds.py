"""What a job makes beside what has been measured elsewhere: on as many GPUs as it has, and of a model that was compiled."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_rank_facts import CONV, FACTS, PICTURES
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.reference.training_speeds import poorest_scaling

ONE_A100 = 1450.0  # images/s under AMP, the least of the sources
MADE = 256 / 0.09  # images/s of a rank outside of its wait for input
COMPILED = {
    **FACTS,
    "conv": None,
    "compiled_frames": 3,
    "autocast": {"enabled": True, "device": "cuda", "dtype": "bfloat16"},
}


def compared(facts: dict[str, Any], ranks: int = 1, uuids: tuple[str, ...] = ()) -> Analysis:
    told = {}
    for rank in range(ranks):
        cuda = {**facts["cuda"], "uuid": uuids[rank]} if uuids else facts["cuda"]
        told[100 + rank] = {**facts, "cuda": cuda, "rank": rank}
    return analyse(recording({rank: plan(samples=256) for rank in range(ranks)}, facts=told))


def rates(found: Analysis) -> tuple[float | None, float | None]:
    return found.get("reference.images_per_s"), found.get("reference.observed_images_per_s")


@pytest.mark.parametrize(
    ("facts", "ranks", "uuids", "gpus"),
    [
        pytest.param(FACTS, 1, (), 1, id="one"),
        pytest.param(FACTS, 2, ("aa", "bb"), 2, id="each on its own"),
        pytest.param(FACTS, 2, ("aa", "aa"), 1, id="two on one"),
        pytest.param(FACTS, 2, (), 2, id="an older torch tells no names"),
        pytest.param({**FACTS, "data_parallel": [{"devices": 4}]}, 1, ("aa",), 4, id="DataParallel over four"),
    ],
)
def test_the_reference_is_of_as_many_gpus_as_the_job_has(
    facts: dict[str, Any], ranks: int, uuids: tuple[str, ...], gpus: int
) -> None:
    usual, observed = rates(compared(facts, ranks, uuids))
    assert observed == pytest.approx(ranks * MADE, rel=0.01)
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
    assert rates(found) == (None, None) and "was not seen" in found.missing["reference.images_per_s"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_frozen_backbone_is_not_compared_with_those_that_learned(compiled: bool) -> None:
    layers = {"model": {"layers": {"Conv2d": 53}, "parameters": 25_557_032}, "linear": {"weight_shape": [1000, 2048]}}
    whole = COMPILED if compiled else {**FACTS, **layers}
    frozen = {**whole, "work": [[3, 2_049_000, 1, 1000]]}
    assert rates(compared(whole))[0] == ONE_A100 and rates(compared(frozen)) == (None, None)


def test_the_first_convolution_tells_the_size_before_the_loader_does() -> None:
    small = {**FACTS, "conv": {**CONV, "shape": [256, 3, 64, 64]}}
    assert rates(compared(small)) == (None, None)
