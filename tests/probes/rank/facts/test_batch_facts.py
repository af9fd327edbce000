"""Padding is read from the attention mask of batches on the CPU, whatever holds them, and never from anything else."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.facts.batch_facts import BatchSamples  # noqa: E402

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
SEEN = {"looks": 1, "cells": 8, "tokens": 4, "longest": 6}


def seen(*batches: Any) -> dict[str, Any] | None:
    facts = SimpleNamespace(values={})
    samples = BatchSamples(facts)  # type: ignore[arg-type]
    for batch in batches:
        samples._due_ns = 0
        samples.batch(batch)
    found: dict[str, Any] | None = facts.values.get("padding")
    return found


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": MASK, "attention_mask": MASK},
        UserDict({"attention_mask": MASK}),
        ({"attention_mask": MASK.bool()}, torch.zeros(2)),
    ],
    ids=["a dict", "Hugging Face's", "beside its labels"],
)
def test_the_mask_of_a_batch_is_summed(batch: Any) -> None:
    assert seen(batch) == SEEN


PAD = 0
TEXT = torch.tensor([[5, 9, 4, 7, 8, 6, 2, 3], [7, 5, 8, 4, PAD, PAD, PAD, PAD], [6, 4, PAD, PAD, PAD, PAD, PAD, PAD]])


def ends(*batches: Any) -> dict[str, Any] | None:
    facts = SimpleNamespace(values={})
    samples = BatchSamples(facts)  # type: ignore[arg-type]
    for batch in batches:
        samples._due_ns = 0
        samples.batch(batch)
    found: dict[str, Any] | None = facts.values.get("padded_ends")
    return found


@pytest.mark.parametrize(
    "batch",
    [(TEXT, torch.zeros(3)), {"input_ids": TEXT, "labels": TEXT}, (TEXT.flip(1).int(), TEXT == PAD, torch.zeros(3))],
    ids=["a tuple", "a dict", "padded at the start, beside a mask of the opposite sense"],
)
def test_without_a_mask_padding_is_what_fills_the_ends_of_rows(batch: Any) -> None:
    assert ends(batch) == {"looks": 1, "cells": 24, "tokens": 14, "longest": 24}
    assert seen(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        ((TEXT != PAD).long(),),
        (torch.zeros(3, 8, dtype=torch.int64),),
        (torch.tensor([[1] * 5 + [2] * 5, [1] * 4 + [2] * 6]),),
        (torch.tensor([[0, 3, 0, 0, 5, 0, 0, 0, 0], [0, 0, 7, 0, 0, 0, 1, 0, 0]]),),
        ({"token_type_ids": TEXT, "labels": TEXT},),
        (TEXT.float(),),
        (TEXT - 100,),
        (TEXT[:, :7],),
        (TEXT[:1],),
    ],
    ids=["a mask", "zeros", "segments", "counts", "other names", "features", "labels", "short rows", "a single row"],
)
def test_what_looks_like_no_tokens_has_no_padding(batch: Any) -> None:
    assert ends(*batch) is None


def test_full_rows_have_none() -> None:
    rows = torch.arange(64).reshape(4, 16)
    assert ends((rows, rows)) == {"looks": 1, "cells": 64, "tokens": 64, "longest": 64}


def test_batches_add_up() -> None:
    batch = {"attention_mask": MASK}
    assert seen(batch, batch) == {name: 2 * value for name, value in SEEN.items()}


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": MASK},
        {"attention_mask": MASK.float()},
        {"attention_mask": MASK[0]},
        {"attention_mask": torch.zeros(2, 4, dtype=torch.int64, device="meta")},
        {"attention_mask": torch.zeros(0, 4, dtype=torch.int64)},
        {"attention_mask": MASK.tolist()},
        {"deep": [{"attention_mask": MASK}]},
        [MASK, MASK],
        None,
    ],
)
def test_nothing_else_is_a_mask(batch: Any) -> None:
    assert seen(batch) is None


def test_a_job_without_masks_is_not_searched_for_ever() -> None:
    other = {"pixels": MASK}
    assert seen(other, other, other, {"attention_mask": MASK}) is None


def test_samples_are_rare_for_their_cost() -> None:
    facts = SimpleNamespace(values={})
    samples = BatchSamples(facts)  # type: ignore[arg-type]
    for _ in range(50):
        samples.batch({"attention_mask": MASK})
    assert facts.values["padding"]["looks"] == 1


def test_the_sizes_of_batches_are_summed_whatever_holds_them() -> None:
    facts = SimpleNamespace(values={})
    samples = BatchSamples(facts)  # type: ignore[arg-type]
    for batch in ([torch.zeros(2, 3), torch.zeros(2)], UserDict({"input_ids": torch.zeros(5)}), "no tensor", None):
        samples._due_ns = 0
        samples.batch(batch)
    assert facts.values["batch_sizes"] == {"looks": 2, "bytes": 32 + 20, "squares": 32.0**2 + 20.0**2}
