"""By how much two runs differ, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisy_runs import noisy_recording, noisy_run, pair_of
from recordings import series, step
from rn50_advisor.advisor.analysis.compare.difference import (
    drawn,
    phase_delta,
    ratio_beside_compute,
    speed_ratio,
    student,
)
from rn50_advisor.advisor.analysis.compare.step_blocks import StepBlocks
from rn50_advisor.advisor.run_comparison import load


def test_two_runs_of_one_job_are_the_same_in_nineteen_of_twenty() -> None:
    """Runs that differ from each other by as much as was measured, on top of steps that remember their neighbours."""
    changes = [
        pair_of(
            noisy_run("a", 2 * seed, steps=80, own_noise=0.05), noisy_run("b", 2 * seed + 1, steps=80, own_noise=0.05)
        ).change
        for seed in range(60)
    ]
    assert changes.count("same") >= 57


def test_slow_noise_widens_the_interval() -> None:
    calm = pair_of(noisy_run("a", 1, slow_noise=0.0), noisy_run("b", 2, slow_noise=0.0), between_runs=0.0)
    moody = pair_of(noisy_run("a", 1, slow_noise=0.3), noisy_run("b", 2, slow_noise=0.3), between_runs=0.0)
    assert calm.speed is not None and moody.speed is not None
    assert moody.speed.hi - moody.speed.lo > 3 * (calm.speed.hi - calm.speed.lo)


def test_what_runs_differ_by_in_any_case_widens_it_too() -> None:
    runs = noisy_run("a", 1), noisy_run("b", 2, scale=1.08)
    assert pair_of(*runs, between_runs=0.005).change == "regressed"
    assert pair_of(*runs, between_runs=0.05).change == "same"


@pytest.mark.parametrize("phase", ["gap", "checkpoint", "input_wait"])
def test_a_tenth_more_beside_computing_is_found_though_runs_compute_at_different_speeds(phase: str) -> None:
    """The whole step cannot show it: runs of the job differ by that much."""
    longer = {phase: step().get(phase, 0.0) + 10.0}
    pairs = [
        pair_of(noisy_run("a", 2 * seed, own_noise=0.05), noisy_run("b", 2 * seed + 1, own_noise=0.05, **longer))
        for seed in range(12)
    ]
    found = [pair for pair in pairs if pair.change == "regressed"]
    assert len(found) >= 9
    assert all("time between steps alone" in pair.why for pair in found if pair.speed and pair.speed.lo > 0.85)
    assert all(pair.speed and 0.8 < pair.speed.value < 0.99 for pair in found)
    assert not any(pair.change == "improved" for pair in pairs)


def test_what_computing_wins_back_is_no_regression() -> None:
    moved = noisy_run("b", 2, gap=10, backward=step()["backward"] - 25)
    assert pair_of(noisy_run("a", 1), moved).change != "regressed"


def test_beside_neighbours_a_longer_wait_for_input_proves_nothing_and_a_longer_gap_does() -> None:
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 2.0), (20, 2.0)),
        ("cpu.busy_s", "host"): series((0, 0.0), (20, 16.0)),
        ("job.cpu_s", "job"): series((0, 0.0), (20, 10.0)),
    }

    def beside(name: str, seed: int, **given: float) -> Any:
        return load(name, replace(noisy_recording(seed, **given), samples=samples), place=seed)

    base = beside("a", 1)
    assert pair_of(base, beside("b", 2, input_wait=step()["input_wait"] + 12)).change == "same"
    assert pair_of(base, beside("b", 2, gap=12)).change == "regressed"


def blocks(*seconds: float, steps: float = 10.0, **phases: float) -> StepBlocks:
    """Blocks of equally many steps with these seconds each; phases are shares of them."""
    took = np.array(seconds)
    return StepBlocks(np.full(took.size, steps), took, {name: share * took for name, share in phases.items()})


def test_draws_lie_around_the_mean_and_are_the_same_for_the_same_seed() -> None:
    made = blocks(*[1.0, 1.1, 0.9, 1.2] * 4, forward=0.5)
    found = drawn(made, seed=3)
    assert set(found) == {"step", "forward"}
    assert found["step"].mean() == pytest.approx(0.105, rel=0.01) and found["step"].std() > 0.0
    assert found["forward"] == pytest.approx(0.5 * found["step"])
    assert (drawn(made, seed=3)["step"] == found["step"]).all()
    assert (drawn(made, seed=4)["step"] != found["step"]).any()


def test_a_single_block_has_no_spread_and_few_spread_more_than_many() -> None:
    assert set(drawn(blocks(1.0), seed=0)["step"]) == {0.1}
    few, many = (np.log(drawn(blocks(*[0.9, 1.1] * n), seed=0)["step"]).std() for n in (1, 8))
    assert few > 5 * many


def test_a_phase_that_most_blocks_do_without_spreads_too() -> None:
    rare = StepBlocks(np.full(8, 10.0), np.full(8, 1.0), {"gap.checkpoint": np.array([0.0] * 7 + [1.0])})
    found = drawn(rare, seed=0)["gap.checkpoint"]
    assert np.isfinite(found).all() and found.mean() == pytest.approx(1.0 / 80, rel=0.1)


@pytest.mark.parametrize(
    ("freedom", "point"),
    [(1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (5, 4.032), (10, 3.169), (100, 2.626), (10**6, 2.576)],
)
def test_students_t_is_that_of_the_tables(freedom: int, point: float) -> None:
    assert student(freedom) == pytest.approx(point, rel=0.03)


def draws(step_s: float, **phases: float) -> dict[str, Any]:
    return {name: np.full(4000, value) for name, value in {"step": step_s, **phases}.items()}


def test_the_ratio_of_speeds_is_scaled_by_the_work_of_a_step() -> None:
    found = speed_ratio(draws(0.1), draws(0.2), 4.0, between_runs=(0.0, 0.0), spared_s=(0.0, 0.0))
    assert (found.value, found.lo, found.hi) == pytest.approx((2.0, 2.0, 2.0))


def test_the_interval_covers_the_spread_between_runs_and_what_chance_brought() -> None:
    spread = speed_ratio(draws(0.1), draws(0.1), 1.0, between_runs=(0.03, 0.04), spared_s=(0.0, 0.0))
    assert (spread.lo, spread.hi) == pytest.approx((np.exp(-0.05 * 2.576), np.exp(0.05 * 2.576)), rel=0.01)
    spared = speed_ratio(draws(0.1), draws(0.2), 1.0, between_runs=(0.0, 0.0), spared_s=(0.0, 0.1))
    assert (spared.lo, spared.hi) == pytest.approx((0.5, 1.0))


def test_a_phase_that_took_longer_is_reported_in_seconds() -> None:
    same, found = (
        phase_delta(draws(0.02)["step"], draws(0.05)["step"], between_runs=(spread, 0.0)) for spread in (0.0, 0.5)
    )
    assert (same.lo, same.value, same.hi) == pytest.approx((0.03, 0.03, 0.03))
    assert found.value == pytest.approx(0.03) and found.hi - found.lo == pytest.approx(2 * 2.576 * 0.01, rel=0.1)


@pytest.mark.parametrize(
    ("disturbed", "value"), [((0.0, 0.0), 0.1 / 0.13), ((0.0, 0.2), 0.1 / 0.11)], ids=["alone", "beside others"]
)
def test_beside_compute_gaps_count_and_input_only_on_an_undisturbed_machine(
    disturbed: tuple[float, float], value: float
) -> None:
    base, other = (
        draws(0.1, input_wait=0.01, gap=0.01, forward=0.08),
        draws(0.2, input_wait=0.03, gap=0.02, forward=0.15),
    )
    found = ratio_beside_compute(base, other, disturbed=disturbed)
    assert found.value == pytest.approx(value) and found.lo < value < found.hi
