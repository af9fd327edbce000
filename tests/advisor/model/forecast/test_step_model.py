"""Step time after a change of one part: worked examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rn50_advisor.advisor.model.forecast.step_model import StepModel

# two ranks: rank 0 owns 1.0 s (0.6 of it forward), rank 1 owns 0.7 s (0.2 of it waiting for input)
OWN: Mapping[int, Mapping[str, float]] = {
    0: {"forward": 0.6, "backward": 0.4},
    1: {"input_wait": 0.2, "forward": 0.3, "backward": 0.2},
}
PLAIN = StepModel(1.1, OWN, wire_s=0.1)
JITTERY = StepModel(1.3, OWN, wire_s=0.1)
HURRIED = StepModel(0.9, OWN, wire_s=0.1)  # the mean step is shorter than its parts say
ALONE = StepModel(1.0, {0: {"input_wait": 0.5, "forward": 0.5}})


@pytest.mark.parametrize(
    ("model", "changes", "given", "step_s"),
    [
        pytest.param(PLAIN, {}, {}, 1.1, id="nothing changes: slowest rank and wire"),
        pytest.param(PLAIN, {(0, "forward"): 0.5}, {}, 1.0, id="the slowest rank gains it all"),
        pytest.param(PLAIN, {(0, "forward"): 0.1}, {}, 0.8, id="the other rank caps the gain"),
        pytest.param(PLAIN, {(1, "input_wait"): 0.0}, {}, 1.1, id="a rank that waits gains nothing"),
        pytest.param(PLAIN, {(0, "forward"): 0.1, (1, "input_wait"): 0.0}, {}, 0.6, id="both ranks"),
        pytest.param(PLAIN, {(1, "input_wait"): 0.7}, {}, 1.3, id="another rank becomes the slowest"),
        pytest.param(PLAIN, {(0, "forward"): -1.0}, {}, 0.8, id="less than nothing is nothing"),
        pytest.param(PLAIN, {}, {"wire_s": 0.0}, 1.0, id="no wire"),
        pytest.param(PLAIN, {}, {"wire_s": 0.4}, 1.4, id="a slower wire"),
        pytest.param(PLAIN, {(0, "forward"): 0.1}, {"floor_s": 0.95}, 0.95, id="the floor holds"),
        pytest.param(PLAIN, {(0, "forward"): 0.1}, {"floor_s": 0.5}, 0.8, id="a floor below changes nothing"),
        pytest.param(JITTERY, {}, {}, 1.3, id="jitter belongs to the step"),
        pytest.param(JITTERY, {(0, "forward"): 0.1}, {}, 0.7 + 0.1 + 0.2 * 0.7, id="jitter shrinks with the slowest"),
        pytest.param(JITTERY, {(0, "forward"): 1.6}, {}, 2.0 + 0.1 + 0.2, id="jitter does not grow with it"),
        pytest.param(HURRIED, {}, {}, 1.1, id="jitter is never negative"),
        pytest.param(ALONE, {(0, "input_wait"): 0.0}, {}, 0.5, id="one rank"),
        pytest.param(ALONE, {(0, "gap"): 0.25}, {}, 1.25, id="a phase that was not there"),
        pytest.param(StepModel(0.5, {}), {}, {}, 0.5, id="no rank: all of it is jitter"),
    ],
)
def test_worked_examples(
    model: StepModel, changes: dict[tuple[int, str], float], given: dict[str, Any], step_s: float
) -> None:
    assert model.step_if(changes, **given) == pytest.approx(step_s)


def test_parts_of_the_step() -> None:
    assert (PLAIN.own_s(0), PLAIN.own_s(1)) == pytest.approx((1.0, 0.7))
    assert PLAIN.slowest_s == pytest.approx(1.0)
    assert [m.jitter_s for m in (PLAIN, JITTERY, HURRIED)] == pytest.approx([0.0, 0.2, 0.0])


def test_asking_leaves_the_model_as_it_was() -> None:
    before = PLAIN.step_if({})
    PLAIN.step_if({(0, "forward"): 9.0})
    assert PLAIN.step_if({}) == before and OWN[0]["forward"] == 0.6


@pytest.mark.parametrize(
    ("job_cpu_s", "cores", "asked", "floor_s"),
    [
        (3.0, 4.0, None, 0.75),
        (3.0, 4.0, 1.0, 0.25),
        (None, 4.0, None, 0.0),
        (3.0, None, None, 0.0),
        (3.0, 0.0, None, 0.0),
    ],
)
def test_cores_bound_the_step_where_they_are_known(
    job_cpu_s: float | None, cores: float | None, asked: float | None, floor_s: float
) -> None:
    model = StepModel(1.0, OWN, job_cpu_s=job_cpu_s, allowed_cores=cores)
    assert model.cpu_floor_s(asked) == pytest.approx(floor_s)


def test_work_without_waits_is_a_little_shorter_than_it_was_between_them() -> None:
    model = StepModel(1.0, OWN)
    assert model.at_best(1.0) == pytest.approx(1.0)
    assert model.at_best(0.5) == pytest.approx(0.5 * (1 - 0.15 * 0.5))
    assert model.at_best(2.0) == pytest.approx(2.0), "no wait ended: nothing is gained"
    assert StepModel(1.0, OWN, on_gpu=True).at_best(0.5) == 0.5, "the caches of a CPU do not speed up a GPU"


@pytest.mark.parametrize(
    ("best", "worst", "seconds", "speedup"),
    [
        (0.55, 0.88, (0.22, 0.55), (1.25, 2.0)),
        (0.88, 0.55, (0.22, 0.55), (1.25, 2.0)),  # whichever comes first
        (0.55, 2.0, (0.0, 0.55), (1.0, 2.0)),  # no saving is negative
        (2.0, 3.0, (0.0, 0.0), (1.0, 1.0)),
    ],
)
def test_a_saving_is_an_ordered_range_that_never_costs(
    best: float, worst: float, seconds: tuple[float, float], speedup: tuple[float, float]
) -> None:
    saving = PLAIN.saving(best, worst, "why")
    assert saving.seconds_per_step == pytest.approx(seconds)
    assert saving.speedup == pytest.approx(speedup)
    assert saving.basis == "why"
