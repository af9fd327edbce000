"""Phases of a live rank's latest steps: where it spends them, how long they usually are, and whether it sleeps."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.analysis.steps.recent_steps import RecentSteps
from rn50_advisor.probes.rank.layout import (
    FLAG_BITS,
    FLAG_CLOCKED,
    FLAG_NO_LOADER,
    FLAG_TAIL,
    GPU_STEP_FIELDS,
    STEP_FIELDS,
)


def row(flags: int, **ms: float) -> tuple[int, tuple[int, ...]]:
    """A step of 100 ms, from its phases in milliseconds."""
    given = {"t_end_ns": 100_000_000, **{f"{name}_ns": int(value * 1e6) for name, value in ms.items()}}
    return flags, tuple(given.get(name, 0) for name in STEP_FIELDS)


def recent(rows: list[tuple[int, tuple[int, ...]]]) -> RecentSteps:
    made = RecentSteps()
    made.add(rows)
    return made


def equal_steps(steps: int, flags: int = FLAG_CLOCKED, **ms: float) -> RecentSteps:
    return recent([row(flags, **ms)] * steps)


@pytest.mark.parametrize(
    ("flags", "share"),
    [
        pytest.param(0, 0.1, id="with a loader, what lies between the phases of the model"),
        pytest.param(FLAG_NO_LOADER, 0.7, id="without one, the forward too: it may be a fetch"),
        pytest.param(FLAG_TAIL, 0.0, id="what follows the last step is none"),
    ],
)
def test_time_that_only_a_stack_can_explain_counts_as_outside(flags: int, share: float) -> None:
    assert recent([row(flags, forward=60, backward=30, gap=8, clip=2)]).outside_share == pytest.approx(share)


COMPILES, USUAL = row(0, t_end=40_000), row(0)
EVALUATES, SAVES = row(0, t_end=60_000, evaluation=59_900), row(0, t_end=30_000, checkpoint=29_900)


@pytest.mark.parametrize(
    ("steps", "p99_ms"),
    [
        pytest.param([COMPILES, *[USUAL] * 30], 100, id="the first steps compile"),
        pytest.param([COMPILES, *[USUAL] * 5], 40_000, id="of few steps nobody knows what is usual"),
        pytest.param(
            [*[USUAL] * 20, EVALUATES, SAVES, *[USUAL] * 9], 100, id="evaluation and checkpoints are set aside"
        ),
        pytest.param([*[USUAL] * 20, row(0, t_end=5_000)], 5_000, id="a slow step is one"),
    ],
)
def test_the_slowest_usual_step_is_the_measure_of_a_hang(steps: list[Any], p99_ms: int) -> None:
    assert recent(steps).p99_ns() == p99_ms * 1_000_000


def test_the_median_of_its_steps() -> None:
    assert recent([]).median_ns == 0
    assert recent([row(0, t_end=ms) for ms in (100, 300, 200)]).median_ns == 200 * 1_000_000


def stream(**ms: float) -> tuple[int, tuple[int, ...]]:
    """A step on the GPU's stream, from its phases in milliseconds."""
    given = {f"{name}_ns": round(value * 1_000_000) for name, value in ms.items()}
    return 0, tuple(given.get(name, 0) for name in GPU_STEP_FIELDS)


BUSY = stream(forward=33, backward=60, optimizer=4, gap=2)
EVALUATED = stream(forward=33, backward=60, optimizer=4, gap=2000)


def test_a_loop_that_reads_its_loss_in_each_step_waits_where_the_gpu_computes() -> None:
    reads = recent([row(0, input_wait=1, forward=5, backward=20, optimizer=2, gap=72)] * 30)
    assert reads.outside_share == pytest.approx(0.72) and reads.idle_share is None
    reads.add_gpu([BUSY] * 9)
    assert reads.idle_share is None, "too few"
    reads.add_gpu([*[BUSY] * 11, EVALUATED])
    assert reads.idle_share == pytest.approx(2 / 99)


def test_without_a_loader_the_stream_does_not_show_where_the_model_starts() -> None:
    without_loader = recent([row(FLAG_NO_LOADER, forward=60, backward=30)] * 30)
    without_loader.add_gpu([BUSY] * 20)
    assert without_loader.idle_share is None


def test_who_stands_in_an_evaluation_is_measured_by_whole_steps() -> None:
    assert recent([*[USUAL] * 20, EVALUATES]).p99_ns(whole=True) == 60_000_000_000


WORKS = {"forward": 30, "forward_cpu": 30, "backward": 50, "backward_cpu": 50, "optimizer": 20, "optimizer_cpu": 20}


@pytest.mark.parametrize(
    ("given", "alone", "share"),
    [
        (WORKS, True, 0.0),
        ({**WORKS, "forward_cpu": 10, "optimizer_cpu": 10, "backward_cpu": 20}, True, 0.6),
        (
            {**WORKS, "forward_cpu": 10, "optimizer_cpu": 10, "backward_cpu": 50},
            False,
            0.6,
        ),  # others are waited for in the backward: the rest is used
        ({**WORKS, "forward_cpu": 10, "run_delay": 20}, True, 0.0),  # in line for a core
        ({**WORKS, "forward": 20, "clip": 10, "forward_cpu": 20}, True, 0.1),
        ({**WORKS, "run_delay": 5}, True, 0.0),
        ({**WORKS, "forward_cpu": 10, "run_delay": 20}, False, 0.2),
        ({**WORKS, "forward_cpu": 20, "backward_cpu": 40, "run_delay": 20}, False, 0.0),
    ],
)
def test_time_that_no_clock_explains_is_asleep(given: dict[str, float], alone: bool, share: float) -> None:
    assert equal_steps(5, **given).asleep_share(alone=alone) == pytest.approx(share)


def test_without_clocks_nobody_is_suspected() -> None:
    asleep = {**WORKS, "forward_cpu": 0}
    assert equal_steps(20, 0, **asleep).asleep_share(alone=True) == 0.0
    assert equal_steps(2, **asleep).asleep_share(alone=True) == 0.0
    assert equal_steps(5, FLAG_CLOCKED | FLAG_TAIL, **asleep).asleep_share(alone=True) == 0.0


@pytest.mark.parametrize(
    ("flags", "given", "share"),
    [
        (0, {"forward": 30, "backward": 50}, 0.05),
        (0, {"forward": 29, "backward": 60}, 0.0),
        (FLAG_NO_LOADER, {"forward": 60, "backward": 20}, 0.0),  # the fetch may be in there
        (FLAG_TAIL, {"forward": 60, "backward": 20}, 0.0),
        (0, {"forward": 24, "backward": 60}, 0.1),
        (FLAG_NO_LOADER, {"forward": 10, "backward": 80}, 0.0),
    ],
)
def test_a_pass_that_is_long_beside_the_other_makes_a_step_uneven(
    flags: int, given: dict[str, float], share: float
) -> None:
    assert equal_steps(5, flags, **given).uneven_share(on_gpu=False) == pytest.approx(share)


def test_a_gpus_backward_pass_is_not_what_its_host_shows() -> None:
    assert equal_steps(5, 0, forward=24, backward=60).uneven_share(on_gpu=True) == 0.0


def test_steps_that_were_only_counted_are_no_part_of_the_window() -> None:
    recent = equal_steps(20, forward=30, backward=50)
    before = list(recent.step_ns)
    row = (tuple(range(len(STEP_FIELDS))),)
    recent.add([(FLAG_CLOCKED | 99 << FLAG_BITS, *row)])
    assert (recent.steps, recent.counted, list(recent.step_ns)) == (120, 100, before)
