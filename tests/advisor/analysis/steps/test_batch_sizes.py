"""How the compute of a step depends on its batch size, from the odd sizes that occur."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from recordings import recording, step
from rn50_advisor.advisor.analysis.steps.batch_sizes import batch_values
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.recording import Recording


def sized(compute: Mapping[int, float], *, steps: int = 60, every: int = 10) -> Recording:
    """Forward and backward take so many milliseconds by the size of the batch; the last of each ten has the second size."""
    usual, other = list(compute)
    sizes = [other if n % every == every - 1 else usual for n in range(steps)]
    return recording(
        {0: [step(samples=s, forward=compute[s] / 3, backward=compute[s] * 2 / 3, optimizer=0) for s in sizes]},
        facts={100: {"cuda": {"name": "A100"}}},
    )


def batches(made: Recording, missing: dict[str, str] | None = None) -> dict[str, float]:
    found = batch_values(made, steady_steps(all_steps(made)))
    if missing is not None:
        missing.update({name: why for (name, _), why in found.missing.items()})
    return {name: value for (name, _), value in found.items()}


def test_the_part_that_does_not_depend_on_the_batch_is_derived_from_another_size() -> None:
    found = batches(sized({32: 90.0, 16: 75.0}))
    assert found["batch.fixed_share"] == pytest.approx(60 / 90)
    assert (found["batch.samples"], found["batch.sizes"]) == (32, 2) and found["batch.usual_share"] == pytest.approx(
        0.9, abs=0.02
    )


def test_time_in_proportion_to_the_batch_has_no_fixed_part() -> None:
    assert batches(sized({32: 90.0, 16: 45.0}))["batch.fixed_share"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("compute", [{32: 90.0, 31: 90.0}, {32: 90.0, 30: 10.0}])
def test_sizes_that_hardly_differ_give_no_fixed_share(compute: Mapping[int, float]) -> None:
    missing: dict[str, str] = {}
    assert "batch.fixed_share" not in batches(sized(compute), missing)
    assert "one size" in missing["batch.fixed_share"]


def test_one_odd_batch_is_no_measurement() -> None:
    assert "batch.fixed_share" not in batches(sized({32: 90.0, 16: 75.0}, every=30))


def test_steps_of_fewer_micro_batches_are_no_smaller_batches() -> None:
    # a micro-batch of 8 takes 30 ms, whatever its size; the last step of an epoch has half as many
    sizes = [2 if n % 10 == 9 else 4 for n in range(60)]
    rows = [step(samples=8 * k, micro_batches=k, forward=10 * k, backward=20 * k, optimizer=0) for k in sizes]
    made = recording({0: rows}, facts={100: {"cuda": {"name": "A100"}}})
    missing: dict[str, str] = {}
    found = batches(made, missing)
    assert "batch.fixed_share" not in found and "one size" in missing["batch.fixed_share"]
    assert found["batch.usual_share"] == 1.0, "of one size they are"
