"""Which loader feeds a rank's training, and what threads of a worker compute beside the one that makes batches."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts, training_loader, with_helpers_s


def loader(number: int, *, rank: int = 0, training: bool | None = True, **more: Any) -> LoaderFacts:
    persistent = more.pop("persistent", False)
    return LoaderFacts(rank, number, training, "train.py", number, 2, 8, persistent, False, {}, **more)


@pytest.mark.parametrize(
    ("loaders", "number"),
    [
        ([], None),
        ([loader(1, training=None)], 1),  # the only one
        ([loader(1, training=None), loader(2, training=None)], None),
        ([loader(1), loader(2), loader(3, training=False)], 2),  # the last one known to
        ([loader(1, beside=1), loader(2), loader(3)], 1),  # of several at a time the slowest
        ([loader(1, rank=1)], None),
    ],
)
def test_the_loader_that_feeds_a_rank(loaders: list[LoaderFacts], number: int | None) -> None:
    found = training_loader(loaders, 0)
    assert (found and found.id) == number


@pytest.mark.parametrize(("persistent", "made", "lives"), [(True, 1, True), (True, 2, False), (False, 1, False)])
def test_workers_live_on_with_a_loader_that_is_made_once(persistent: bool, made: int, lives: bool) -> None:
    assert loader(1, persistent=persistent, made=made).lives_on is lives


@pytest.mark.parametrize(("helping", "all_s"), [(None, 1.0), (0.0, 1.0), (0.5, 2.0), (0.9, 10.0), (1.0, 100.0)])
def test_helping_threads_come_on_top_of_the_one_that_makes_batches(helping: float | None, all_s: float) -> None:
    assert with_helpers_s(1.0, helping) == pytest.approx(all_s)
