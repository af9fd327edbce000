"""Samples of a batch, whatever the job's batches are."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.workers.batch_size import count_samples

Pair = namedtuple("Pair", "image label")


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def size(self, dimension: int) -> int:
        return self.shape[dimension]


class Nested:
    @property
    def shape(self) -> Any:
        raise RuntimeError("a nested tensor has none")


class Method:
    def shape(self) -> tuple[int, ...]:
        return (3,)


@pytest.mark.parametrize(
    ("batch", "given", "samples"),
    [
        ([Tensor(32, 3, 224, 224), Tensor(32)], 64, 32),
        ((Tensor(31, 3), Tensor(31)), 32, 31),
        ((Tensor(31, 3), Tensor(31)), 2, 31),  # a pair is no batch of two
        (Tensor(16, 3), None, 16),
        (Tensor(), 8, 1),
        ({"pixels": Tensor(8, 3), "labels": Tensor(8)}, None, 8),
        ([{"x": [Tensor(5, 2)]}], 9, 5),
        (Pair(Tensor(4, 3), Tensor(4)), None, 4),
        ([["a"] * 7, ["b"] * 7], 7, 7),  # strings stay a list as long as the batch
        ([["a"] * 7], 9, 9),
        ("text", 6, 6),
        ([], 6, 6),
        ({}, 6, 6),
        (None, None, 0),
        (7, None, 0),
        (SimpleNamespace(shape=(12, 3)), None, 12),
        (Nested(), 5, 5),
        (Method(), 5, 5),
        ([SimpleNamespace(size=lambda dimension: 1 / 0)], 5, 5),
        ([[[[[[Tensor(3)]]]]]], 5, 5),  # deeper than the search
    ],
)
def test_samples_are_counted_by_the_first_tensor_or_list(batch: Any, given: int | None, samples: int) -> None:
    assert count_samples(batch, given) == samples
