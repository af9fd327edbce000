"""What held a full GPU's memory, which batch would have fitted, and what to change first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from full_gpus import ALONE, GIB, HELD, died
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.gpu.out_of_memory import OutOfMemory


def test_memory_holders_are_listed_by_size_and_a_batch_with_its_arithmetic() -> None:
    full = analyse(died(ALONE)).out_of_memory
    # 66 GiB of tensors, of which a GiB each of parameters and state; 256 samples took the other 64 and asked for 2 more
    assert full.activations == 64 * GIB and full.batch == 256
    assert [(what, value / GIB) for what, value, _ in full.rows][:2] == [("activations", 64.0), ("parameters", 1.0)]
    # 67.5 GiB are torch's; beside 3 GiB that stay, 64.5 hold 64.5 / (66 / 256) samples
    assert full.fits == 250 and full.advised_batch == 128
    assert (
        full.arithmetic == "3.00 GiB whatever the batch, 264 MiB a sample: 250 samples fit beside them, 256 were in it"
    )
    assert full.advice.startswith("a micro-batch of 128 with accumulation")


def test_in_a_forward_pass_the_batch_is_an_upper_bound() -> None:
    full = analyse(died(ALONE, phase="forward")).out_of_memory
    assert "so far, so at most 250 samples fit" in full.arithmetic


# AdamW in its first step: of 8 GiB of state 5.5 have been made.
UPDATE = {
    "class": "AdamW",
    "parameter_bytes": int(4 * GIB),
    "gradient_bytes": int(4 * GIB),
    "state_bytes": int(5.5 * GIB),
}


def test_no_batch_helps_where_the_optimizer_has_no_room() -> None:
    text = ALONE.replace("66.00 GiB is allocated", "14.00 GiB is allocated")
    facts = {"held_at_end": UPDATE, "optimizer": None}
    full = analyse(died(text, phase="optimizer", facts=facts)).out_of_memory
    assert (full.state, full.state_held, full.fixed) == (8 * GIB, 5.5 * GIB, 16 * GIB)
    rows = {what: (value / GIB, note) for what, value, note in full.rows}
    assert rows["activations"][0] == 0.5 and rows["optimizer state"][0] == 5.5
    assert "of 8.00 GiB that the first step makes" in rows["optimizer state"][1]
    assert full.fits is None and full.advised_batch is None and not full.arithmetic
    assert full.advice.startswith("memory ran out after the backward pass, whatever the batch")
    small = text.replace("80.00 GiB", "14.75 GiB")
    for phase in ("optimizer", "ended"):  # by its sizes alone
        advice = analyse(died(small, phase=phase, facts=facts)).out_of_memory.advice
        assert advice.startswith("weights, gradients and optimizer state alone take 16.0 GiB")


@pytest.mark.parametrize(("phase", "held"), [("forward", 0.0), ("backward", 0.25), ("optimizer", 1.0)])
def test_gradients_count_as_far_as_they_existed(phase: str, held: float) -> None:
    """By the phase, or as the last frames saw them."""
    end = {**HELD, "gradient_bytes": int(held * GIB)}
    full = analyse(died(ALONE, phase=phase, facts={"held_at_end": end})).out_of_memory
    assert full.activations == (64 - held) * GIB
    (row,) = [(value, note) for what, value, note in full.rows if what == "gradients"]
    assert row[0] == (held or 1) * GIB and ("to be made in the backward pass" in row[1]) is (not held)
    unseen = analyse(died(ALONE, phase=phase)).out_of_memory
    assert unseen.activations == (63 if phase == "optimizer" else 64) * GIB


def test_a_batch_that_fits_by_the_arithmetic_is_not_advised() -> None:
    full = analyse(died(ALONE.replace("1.00 GiB is free", "9.00 GiB is free"))).out_of_memory
    assert full.fits is None and not full.arithmetic


def test_the_jobs_own_limit_is_what_torch_may_fill() -> None:
    text = ALONE.replace("Of the allocated", "67.50 GiB allowed; Of the allocated").replace(
        "1.00 GiB is free", "11.00 GiB is free"
    )
    full = analyse(died(text)).out_of_memory
    assert full.allowed == 67.5 * GIB and full.fits == 250, "as if no more were free"
    assert full.advice.startswith("the job allows itself 67.5 GiB of this GPU, which had more")
    filled = analyse(died(text.replace("11.00 GiB is free", "1.00 GiB is free"))).out_of_memory
    assert not filled.limited and "micro-batch" in filled.advice


def test_after_many_steps_that_fitted_the_batch_is_not_blamed() -> None:
    full = analyse(died(ALONE, steps=40)).out_of_memory
    assert "it had fitted for 40 steps" in full.advice
    assert "micro-batch" in analyse(died(ALONE, steps=9)).out_of_memory.advice


@pytest.mark.parametrize(
    ("unallocated", "asked", "fragmented"),
    [("4.00 GiB", "2.00 GiB", True), ("4.00 GiB", "4.10 GiB", False), ("3.90 GiB", "2.00 GiB", False)],
)
def test_memory_in_pieces_that_would_have_been_enough(unallocated: str, asked: str, fragmented: bool) -> None:
    text = ALONE.replace("512.00 MiB is reserved", f"{unallocated} is reserved").replace(
        "allocate 2.00 GiB", f"allocate {asked}"
    )
    full = analyse(died(text)).out_of_memory
    assert full.fragmented is fragmented and ("expandable_segments" in full.advice) is fragmented


def test_segments_that_grow_are_not_advised_where_they_do() -> None:
    made = died(ALONE.replace("512.00 MiB is reserved", "4.00 GiB is reserved"))
    on = {"variables": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    full = analyse(replace(made, meta=replace(made.meta, environment=on))).out_of_memory
    assert full.fragmented and "expandable_segments" not in full.advice


def test_nothing_fits_beside_what_does_not_depend_on_the_batch() -> None:
    facts = {"optimizer": {**HELD, "state_bytes": int(80 * GIB)}}
    full = analyse(died(ALONE, facts=facts)).out_of_memory
    assert full.fits is None and "82.0 GiB: no batch fits beside them" in full.advice


def test_one_sample_too_many_is_no_batch_of_zero() -> None:
    full = OutOfMemory(0, asked=2 * GIB, total=8 * GIB, free=0.0, allocated=7 * GIB, unallocated=0.0, batch=1.0)
    assert full.fits == 0 and full.advised_batch is None
