"""When a run became slower: the step, the rank, the phase, what else changed then, and what is no change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noisy_runs import noisy_plan
from recordings import epoch_starts, folded, plan, recording, series
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import SpeedChange
from rn50_advisor.advisor.model.recording import Recording


def changes(made: Recording) -> tuple[SpeedChange, ...]:
    return analyse(made).changes


def jumps(before: int, after: int, **given: float) -> list[dict[str, float]]:
    return [*noisy_plan(1, before), *noisy_plan(2, after, **given)]


@pytest.mark.parametrize(
    ("given", "phase"),
    [
        ({"forward": 70}, "forward"),
        ({"input_wait": 50}, "input_wait"),
        ({"gap": 40}, "gap"),
        ({"optimizer": 60}, "optimizer"),
    ],
)
def test_a_change_names_step_time_and_phase(given: dict[str, float], phase: str) -> None:
    (change,) = changes(recording({0: jumps(100, 150, **given)}))
    assert change.step == pytest.approx(100, abs=3)
    assert change.t_s == pytest.approx(12.0, abs=0.6) and change.until_s is None
    assert change.after_s / change.before_s == pytest.approx(1.4, abs=0.12)
    assert change.phase == phase and change.phase_s == pytest.approx(0.04, abs=0.012)
    assert change.rank is None and not change.alike
    assert change.lost_share == pytest.approx(0.04 * 150 / (0.1 * 100 + 0.14 * 150), abs=0.04)


def test_the_rank_that_slows_the_others_is_named() -> None:
    steady, late = noisy_plan(3, 250), jumps(100, 150, forward=70)
    (change,) = changes(recording({0: steady, 1: late}))
    assert (change.rank, change.phase) == (1, "forward")
    assert change.step == pytest.approx(100, abs=3)


def test_the_wire_is_distinguished_from_the_ranks() -> None:
    ranks = {0: plan(240), 1: plan(240)}
    fast, slow = recording(ranks), recording(ranks, wire_ms=40)
    shift = int(fast.steps[0]["t_end_ns"][99]) - int(slow.steps[0]["t_start_ns"][100])

    def joined(was: Any, now: Any) -> Any:
        later = now[100:].copy()
        for name in (
            n for n in later.dtype.names or () if n in ("t_start_ns", "t_end_ns", "compute_end_ns", "comm_end_ns")
        ):
            later[name] += shift
        return np.concatenate([was[:100], later])

    steps = {rank: joined(fast.steps[rank], slow.steps[rank]) for rank in ranks}
    comm = {rank: joined(fast.comm[rank], slow.comm[rank]) for rank in ranks}
    (change,) = changes(replace(slow, steps=steps, comm=comm))
    assert (change.rank, change.phase) == (None, "comm_exposed")


def test_a_bump_has_an_end() -> None:
    bump = [*noisy_plan(1, 120), *noisy_plan(2, 80, forward=80), *noisy_plan(3, 120)]
    (change,) = changes(recording({0: bump}))
    assert change.until_s == pytest.approx(2 + 12 + 12, abs=1.0)
    assert change.steps_after == pytest.approx(80, abs=6)


def test_the_slower_stretch_is_marked_in_the_course_of_the_run() -> None:
    for steps, ends in (
        ([*noisy_plan(1, 120), *noisy_plan(2, 80, forward=80), *noisy_plan(3, 120)], 26.0),
        ([*noisy_plan(1, 120), *noisy_plan(2, 120, forward=80)], 32.0),
    ):
        (part,) = [s for s in analyse(recording({0: steps})).segments if s.kind == "change"]
        assert part.start_s == pytest.approx(14.0, abs=0.7) and part.end_s == pytest.approx(ends, abs=1.0)
        assert part.first_step == pytest.approx(120, abs=3) and "× slower" in part.label


def test_two_steps_down_are_two_changes() -> None:
    stairs = [*noisy_plan(1, 120), *noisy_plan(2, 120, forward=60), *noisy_plan(3, 120, forward=120)]
    assert [round(change.step, -1) for change in changes(recording({0: stairs}))] == [120, 240]


def test_a_machine_that_slows_down_slows_forward_and_backward_alike() -> None:
    (change,) = changes(recording({0: [*noisy_plan(1, 120), *noisy_plan(2, 120, scale=1.3)]}))
    assert change.alike and change.rank is None


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(noisy_plan(7, 300), id="noise that remembers"),
        pytest.param([*noisy_plan(1, 120, forward=80), *noisy_plan(2, 120)], id="warm caches make it faster"),
        pytest.param([*noisy_plan(1, 30, forward=80), *noisy_plan(2, 220)], id="a long warm-up"),
        pytest.param(noisy_plan(1, 12) + noisy_plan(2, 10, forward=80), id="too short to decide"),
        pytest.param([*plan(120), *plan(1, forward=9000), *plan(120)], id="one long step"),
        pytest.param(epoch_starts(plan(240), 8, input_wait=400), id="epochs that begin slowly"),
        pytest.param(
            [*plan(120), *[p for _ in range(12) for p in (*plan(9), *plan(1, evaluation=500))]], id="evaluation"
        ),
        pytest.param(
            [*plan(120), *[p for _ in range(12) for p in (*plan(9), *plan(1, checkpoint=500))]], id="checkpoints"
        ),
        pytest.param(
            [p for _ in range(25) for p in (*plan(5), *plan(5, forward=45))], id="two kinds of steps by turns"
        ),
    ],
)
def test_what_is_no_change_is_none(steps: list[dict[str, float]]) -> None:
    assert changes(recording({0: steps})) == ()


def test_a_change_in_windows_that_retention_left_is_found_too() -> None:
    made = recording({0: jumps(600, 600, forward=70)})
    made = replace(made, steps={0: folded(made.steps[0], 20, 900)})
    (change,) = changes(made)
    assert change.step == pytest.approx(600, abs=40) and change.phase == "forward"


def test_changes_seen_on_the_host_are_named_most_significant_first() -> None:
    made = recording({0: noisy_plan(1, 250), 1: jumps(100, 150, forward=70)})
    samples = {
        ("cpu.busy_s", "host"): series((0, 0), (10, 10), (30, 70)),
        ("job.cpu_s", "job"): series((0, 0), (10, 10), (30, 28)),
        ("cgroup.throttled_s", "pid:101"): series((0, 0), (10, 0), (30, 8)),
        ("gpu.sm_clock_mhz", "gpu:0"): series((2, 1980), (8, 1980), (15, 1200), (25, 1200)),
        ("gpu.temp_c", "gpu:0"): series((2, 60), (8, 60), (15, 61), (25, 61)),
    }
    (change,) = changes(replace(made, samples=samples))
    seen = {c.metric: (c.scope, round(c.before, 1), round(c.after, 1)) for c in change.coincidences}
    assert seen.keys() == {"cpu.other_cores", "quota.throttled_s_per_s", "gpu.sm_clock_mhz"}
    assert seen["gpu.sm_clock_mhz"] == ("gpu:0", 1980.0, 1200.0)
    assert seen["quota.throttled_s_per_s"][0] == "rank:1"


def test_a_quota_that_begins_names_its_rank_whatever_phase_it_hits() -> None:
    both = jumps(100, 150, forward=70)
    made = recording({0: both, 1: both})
    samples = {("cgroup.throttled_s", "pid:101"): series((0, 0), (10, 0), (30, 8))}
    assert changes(made)[0].rank is None
    assert changes(replace(made, samples=samples))[0].rank == 1


def growing(times: float) -> list[dict[str, float]]:
    """From step 120 on twice the batch, and steps so many times as long."""
    return [*noisy_plan(1, 120), *noisy_plan(2, 120, scale=times, samples=16)]


def test_a_larger_batch_that_takes_longer_is_not_slower() -> None:
    assert changes(recording({0: growing(2.0)})) == ()
    (change,) = changes(recording({0: growing(2.6)}))
    assert change.step == pytest.approx(120, abs=3)


def test_a_smaller_batch_that_takes_longer_is_slower() -> None:
    (change,) = changes(recording({0: [*noisy_plan(1, 120), *noisy_plan(2, 120, scale=1.4, samples=4)]}))
    assert change.after_s / change.before_s == pytest.approx(1.4, abs=0.12)
