"""Steady steps cut into blocks: whole periods in each, and windows weighing as the steps in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisy_runs import noisy_plan, noisy_recording, pair_of
from recordings import folded, plan, recording, step
from rn50_advisor.advisor.analysis.compare.step_blocks import step_blocks
from rn50_advisor.advisor.run_comparison import load


def test_what_comes_with_a_period_is_no_noise() -> None:
    """Checkpoints every tenth step: blocks of whole periods all hold as many."""

    def run(name: str, seed: int, period: int) -> Any:
        plan = noisy_plan(seed, 200)
        saving = [{**s, "checkpoint": 200.0} if n % period == 3 else s for n, s in enumerate(plan)]
        return load(name, recording({0: saving}), place=seed)

    pair = pair_of(run("a", 1, 10), run("b", 2, 20), between_runs=0.005)
    assert pair.change == "improved" and pair.speed is not None
    assert pair.speed.lo < 120 / 110 < pair.speed.hi and pair.speed.hi - pair.speed.lo < 0.12


def test_windows_that_retention_left_count_like_the_steps_in_them() -> None:
    made = noisy_recording(2, steps=400)
    windows = replace(made, steps={0: folded(made.steps[0], 40, 300)})
    pair = pair_of(load("raw", made), load("windows", windows, place=1))
    assert pair.change == "same" and pair.speed is not None
    assert pair.speed.value == pytest.approx(1.0, abs=0.01)


def test_blocks_hold_all_steady_steps_and_all_their_time() -> None:
    made = step_blocks(recording({0: plan(83, gap=7), 1: plan(83, gap=7)}, wire_ms=3))
    assert made is not None and made.step_s == pytest.approx(0.110)
    assert made.steps.size == 16 and made.steps.sum() == 80  # the first three warm up
    assert made.seconds.sum() == pytest.approx(80 * 0.110)
    phases_ms = {
        phase: round(1000 * seconds.sum() / 80, 6) for phase, seconds in made.phases.items() if seconds.sum() > 1e-9
    }
    assert phases_ms == {"input_wait": 10, "forward": 30, "backward": 50, "optimizer": 10, "gap": 7, "comm_exposed": 3}


def test_the_phases_are_those_of_the_rank_that_comes_last() -> None:
    made = step_blocks(recording({0: plan(43), 1: plan(43, forward=70)}, wire_ms=0))
    assert made is not None
    assert made.phases["forward"].sum() / made.steps.sum() == pytest.approx(0.070)


@pytest.mark.parametrize(("steps", "blocks"), [(4, 1), (8, 1), (9, 2), (43, 10), (200, 16)])
def test_a_block_is_of_four_steps_at_least_and_there_are_sixteen_at_most(steps: int, blocks: int) -> None:
    made = step_blocks(recording({0: plan(steps)}))
    assert made is not None and made.steps.size == blocks


def test_checkpoints_come_equally_often_in_each_block() -> None:
    saving = [step(checkpoint=200.0 if n % 10 == 3 else 0.0) for n in range(203)]
    made = step_blocks(recording({0: saving}))
    assert made is not None
    saved = made.phases["gap.checkpoint"][:-1] / made.steps[:-1]
    assert saved == pytest.approx(np.full(saved.size, 0.020), rel=0.1)


@pytest.mark.parametrize("plans", [{}, {0: []}, {0: plan(1)}])
def test_without_a_steady_step_there_are_no_blocks(plans: dict[int, list[dict[str, float]]]) -> None:
    assert step_blocks(recording(plans)) is None
