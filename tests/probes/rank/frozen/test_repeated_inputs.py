"""Equal rows have equal marks, whatever their layout; what was seen before is counted in fixed memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

from rn50_advisor.probes.rank.frozen.repeated_inputs import (  # noqa: E402
    KNOWN_MAX,
    RECENT,
    ROWS_MAX,
    RepeatedInputs,
    row_marks,
)

IMAGES = torch.rand(32, 3, 20, 20, generator=torch.Generator().manual_seed(0))


def marks(*given: Any, **named: Any) -> Any:
    return row_marks(torch, (given, named))


def test_a_row_has_the_same_mark_in_another_batch_and_another_layout() -> None:
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    shuffled = IMAGES[order].to(memory_format=torch.channels_last)
    assert marks(shuffled) == [marks(IMAGES)[n] for n in order]
    assert len(set(marks(IMAGES))) == 32


@pytest.mark.parametrize(
    "other",
    [IMAGES.flip(3), IMAGES.roll(1, 2), IMAGES + 0.01 * torch.rand(32, 1, 1, 1), IMAGES[:, :, 1:, 1:]],
    ids=["flipped", "shifted", "brighter", "cropped"],
)
def test_changed_rows_have_other_marks(other: Any) -> None:
    assert not set(marks(other)) & set(marks(IMAGES))


def test_all_that_a_call_is_given_counts() -> None:
    steps = torch.arange(32)
    assert not set(marks(IMAGES, steps)) & set(marks(IMAGES, steps + 1))
    assert not set(marks(IMAGES, scale=1.0)) & set(marks(IMAGES, scale=2.0))
    assert not set(marks(IMAGES, torch.tensor(1.0))) & set(marks(IMAGES, torch.tensor(2.0)))
    assert marks(IMAGES, torch.arange(7)) == marks(IMAGES, torch.arange(7))


@pytest.mark.parametrize(
    "given",
    [
        (),
        (IMAGES, object()),
        (IMAGES.clone().requires_grad_(),),
        (IMAGES.to("meta"),),
        (torch.tensor(1.0),),
        (IMAGES[:0],),
    ],
    ids=["no tensor", "an object", "learns", "not on the CPU", "a number", "empty"],
)
def test_what_cannot_be_read_has_none(given: tuple[Any, ...]) -> None:
    assert marks(*given) is None


def test_few_rows_of_a_large_batch_are_read() -> None:
    assert len(marks(torch.rand(500, 8))) == ROWS_MAX


def epochs(inputs: RepeatedInputs, count: int, rows: int, *, epoch_of: Any = lambda _: 0) -> None:
    for epoch in range(count):
        for first in range(0, rows, 32):
            inputs.add([hash((epoch_of(epoch), "text", n)) for n in range(first, first + 32)])


def test_they_repeat_in_the_second_epoch() -> None:
    inputs = RepeatedInputs()
    epochs(inputs, 1, 512)
    assert not inputs.repeat() and inputs.seen == 0
    epochs(inputs, 1, 512)
    assert inputs.repeat() and (inputs.seen, inputs.rows, inputs.different, inputs.alike) == (
        32 * RECENT,
        32 * RECENT,
        512,
        0,
    )


def test_other_variants_in_each_epoch_do_not() -> None:
    inputs = RepeatedInputs()
    epochs(inputs, 4, 512, epoch_of=int)
    assert not inputs.repeat() and inputs.different == 4 * 512


def test_many_inputs_take_no_more_memory() -> None:
    inputs = RepeatedInputs()
    epochs(inputs, 2, 40_960)
    assert len(inputs._known) <= KNOWN_MAX
    assert inputs.repeat() and inputs.different == pytest.approx(40_960, rel=0.1)


def test_rows_that_look_alike_within_a_call_are_counted() -> None:
    inputs = RepeatedInputs()
    for _ in range(10):
        inputs.add(marks(torch.zeros(16, 50)))
    assert inputs.repeat() and inputs.alike > 0.9
