"""Of ranks with different numbers of batches, the one that has run out is named, only if it is at the end of its epoch."""

from __future__ import annotations

from typing import Any

import pytest

from ending_rule_cases import unjudged
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.rules.failures.uneven_data import uneven_data
from rule_cases import SCRIPT, loader


def ranks(*lengths: int | None, **more: Any) -> dict[str, Any]:
    return {"loaders": tuple(loader(n, 0, dataset={"length": length}, **more) for n, length in enumerate(lengths))}


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ((80, 64), {0: 8, 1: 8}),
        ((80, 64), {0: 9, 1: 9}),  # about to begin its second epoch
        ((80, 64), {0: 16, 1: 16}),
        ((96, 80, 64), {0: 7, 1: 8, 2: 8}),
    ],
    ids=["first epoch", "a step on", "second epoch", "three ranks"],
)
def test_the_rank_with_fewest_batches_has_run_out(lengths: tuple[int, ...], steps: dict[int, int]) -> None:
    found = uneven_data(unjudged(**ranks(*lengths)), steps)
    assert found is not None
    assert (found.rank, found.batches, found.most) == (len(lengths) - 1, 8, lengths[0] // 8)
    assert found.fix.where == found.where == Where(SCRIPT, 42)
    assert f"rank {found.rank}: another rank has {found.most}" in found.evidence.note


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (ranks(64, 64), {0: 8, 1: 8}),
        (ranks(65, 64), {0: 8, 1: 8}),
        (ranks(80, 64), {0: 4, 1: 4}),
        (ranks(80, 64), {0: 0, 1: 0}),
        (ranks(80, None), {0: 8, 1: 8}),
        (ranks(80, 64, batch_sampler="Buckets"), {0: 8, 1: 8}),
        (ranks(80, 64, size=None), {0: 8, 1: 8}),
        (ranks(80, 64), {1: 8}),
        ({}, {0: 8, 1: 8}),
    ],
    ids=[
        "even",
        "the same batches",
        "in the middle",
        "not begun",
        "unknown",
        "own sampler",
        "own batches",
        "one rank",
        "no loaders",
    ],
)
def test_no_rank_is_named_if_that_is_unknown(given: dict[str, Any], steps: dict[int, int]) -> None:
    assert uneven_data(unjudged(**given), steps) is None
