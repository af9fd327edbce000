"""The model that a rank trains, from its facts: architecture, image size, precision, number of GPUs and embedding tables."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_rank_facts import A100, CONV, FACTS, RESNET50
from recordings import plan, recording
from rn50_advisor.advisor.analysis.steps.trained_model import (
    convolutions_of,
    gpus_of_job,
    model_of,
    partly_frozen,
    picture_of,
    precision_of,
    replicas,
    table_values,
)
from rn50_advisor.advisor.model.measures.measured import Measured


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"optimizer": RESNET50}, "resnet50"),
        ({"optimizer": {**RESNET50, "elements": 7}}, None),
        ({"optimizer": {"class": "SGD"}}, None),
        ({}, None),
        ({"optimizer": RESNET50, "work": [[3, 25_557_032, 1, 1000]]}, "resnet50"),
        (
            {"optimizer": RESNET50, "work": [[3, 25_557_032, 1, 1000], [40, 2_049_000, 1, 1000]]},
            None,
        ),  # partly frozen since
    ],
)
def test_a_model_is_known_where_all_of_it_is_trained(facts: Any, name: str | None) -> None:
    found = model_of(facts)
    assert (found and found.name) == name


def test_a_model_is_partly_frozen_where_fewer_parameters_learn_than_the_optimizer_has() -> None:
    assert partly_frozen({"optimizer": RESNET50, "work": [[3, 2_049_000, 1, 1000]]})
    assert not partly_frozen({"optimizer": RESNET50}) and not partly_frozen({"work": [[3, 1, 1, 1000]]})


@pytest.mark.parametrize(
    ("facts", "picture"),
    [
        (FACTS, (224, 224)),
        ({"conv": {"shape": [8, 3, 160, 200]}, "pictures": {"shape": [8, 3, 224, 224]}}, (160, 200)),
        ({"conv": None, "pictures": {"shape": [8, 224, 192, 3]}}, (224, 192)),  # channels last
        ({"conv": {"shape": [8, 3, 16, 16, 16]}}, None),
        ({"pictures": {"shape": [8, 512]}}, None),
        ({}, None),
    ],
)
def test_pictures_are_as_large_as_the_first_convolution_sees_them(facts: Any, picture: tuple[int, int] | None) -> None:
    assert picture_of(facts) == picture


@pytest.mark.parametrize(
    ("facts", "values", "precision"),
    [
        ({}, {}, ""),
        ({}, {"precision.half": 0.0, "precision.tf32": 1.0}, "tf32"),
        ({}, {"precision.half": 0.0, "precision.tf32": 0.0}, "fp32"),
        ({"conv": CONV}, {"precision.half": 1.0}, "bf16"),
        ({"conv": {**CONV, "autocast": "float16"}}, {"precision.half": 1.0}, "fp16"),
        ({"conv": {"weight": "float16"}, "linear": {"weight": "bfloat16"}}, {"precision.half": 1.0}, "bf16"),
        ({"autocast": {"dtype": "float16"}}, {"precision.half": 1.0}, "fp16"),
        ({"optimizer": {"convolutions": {"dtypes": ["float16"]}}}, {"precision.half": 1.0}, "fp16"),
    ],
)
def test_precision_is_that_of_the_layers_that_were_seen(facts: Any, values: dict[str, float], precision: str) -> None:
    assert precision_of(facts, Measured({(name, 0): value for name, value in values.items()}), 0) == precision
    assert precision_of(facts, Measured({(name, 1): value for name, value in values.items()}), 0) == "", (
        "another rank's"
    )


def test_without_convolutions_their_layout_is_empty() -> None:
    assert convolutions_of({}) == convolutions_of({"optimizer": {}}) == {}
    assert convolutions_of({"optimizer": {"convolutions": {"weights": 53}}}) == {"weights": 53}


def test_without_data_parallel_a_rank_has_one_replica() -> None:
    assert replicas(Measured(), 0) == 1 and replicas(Measured({("parallel.devices", 0): 4.0}), 0) == 4


@pytest.mark.parametrize(
    ("uuids", "devices", "gpus"),
    [
        (("a", "b"), {}, 2),
        (("a", "a"), {}, 1),
        ((None, None), {}, 2),  # a rank that reports none has one of its own
        (("a", None), {}, 2),
        (("a",), {0: 4.0}, 4),
        ((), {}, 1),
    ],
)
def test_gpus_of_the_job_count_once(uuids: tuple[str | None, ...], devices: dict[int, float], gpus: int) -> None:
    facts = {100 + rank: {"cuda": {**A100, "uuid": uuid}} for rank, uuid in enumerate(uuids)}
    made = recording({rank: plan(3) for rank in range(len(uuids))}, facts=facts)
    assert gpus_of_job(made, Measured({("parallel.devices", rank): n for rank, n in devices.items()})) == gpus


def table(looks: int = 5, empty: int = 90, device: str = "cpu") -> dict[str, Any]:
    return {"looks": looks, "rows_seen": 100 * bool(looks), "rows_empty": empty * bool(looks), "device": device}


@pytest.mark.parametrize(
    ("facts", "empty", "why"),
    [
        ({"tables": [table()]}, 0.9, ""),
        ({"tables": [table(), table(empty=10)]}, 0.5, ""),
        ({"tables": [table(), table(looks=0)]}, 0.9, ""),
        ({"tables": []}, None, ""),
        ({"tables": [table(looks=1)]}, None, "too few looks"),
        ({"tables": [table(looks=0, device="cuda")]}, None, "on cuda are not read"),
        ({}, None, "too few looks"),
    ],
)
def test_rows_without_a_gradient_are_a_share_of_those_looked_at(facts: Any, empty: float | None, why: str) -> None:
    found = table_values(recording({0: plan(3)}, facts={100: facts}), [0])
    assert found.get(("table.empty_rows", 0)) == empty
    assert why in found.missing.get(("table.empty_rows", 0), "") and bool(why) == bool(found.missing)
