"""The job with a change against the job without: windows that belong together, jobs that end or fail, and time that runs out."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.trials import pairing
from rn50_advisor.advisor.trials.blocks import BlockSchedule
from rn50_advisor.advisor.trials.pairing import (
    OutOfTime,
    TrialSide,
    Turns,
    in_blocks,
    one_after_the_other,
    schedule_of,
    window_of,
)
from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed
from simulated_trials import Nature, simulation

LATER = math.inf
JOBS = simulation()


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "TrialJob", JOBS)
    JOBS.started.clear()
    JOBS.natures.clear()


def side(name: str, **nature: Any) -> TrialSide:
    JOBS.natures[name] = Nature(**nature)
    return TrialSide(Order([name], {}, {}), Path(name))


def test_in_turns_pairs_come_at_each_look_with_the_ratio_of_the_speeds() -> None:
    base, changed = side("without", step_ms=200), side("with", step_ms=100)
    base.start(LATER)
    looks = list(Turns()(base, changed, LATER))
    assert [len(pairs) for pairs in looks] == [4, 8, 16]
    assert looks[-1] == pytest.approx([math.log(2)] * 16, abs=0.02)
    assert JOBS.started == ["without", "with"] * 16, "two processes of one job differ: each pair has its own"


def test_a_job_that_starts_slowly_is_started_for_several_pairs() -> None:
    assert Turns.within(5.0, 300.0) == Turns(1)
    assert Turns.within(40.0, 300.0) == Turns(4)
    base, changed = side("without", step_ms=200), side("with", step_ms=100)
    base.start(LATER)
    looks = list(Turns(4)(base, changed, LATER))
    assert [len(pairs) for pairs in looks] == [4, 8, 16]
    assert looks[-1] == pytest.approx([math.log(2)] * 16, abs=0.02)
    assert JOBS.started == ["without", "with"] * 4


def test_the_base_goes_on_from_one_change_to_the_next() -> None:
    base = side("without", step_ms=200)
    base.start(LATER)
    for name in ("one", "other"):
        changed = side(name, step_ms=160)
        pairs = next(Turns()(base, changed, LATER))
        assert pairs == pytest.approx([math.log(200 / 160)] * 4, abs=0.02)
    assert JOBS.started == [*["without", "one"] * 4, "other", *["without", "other"] * 3]


def test_a_job_that_comes_to_its_end_is_started_again_and_its_windows_count() -> None:
    base, changed = side("without", step_ms=100, steps_max=70), side("with", step_ms=100)
    base.start(LATER)
    looks = list(Turns()(base, changed, LATER))
    assert [len(pairs) for pairs in looks] == [4, 8, 16]
    assert looks[-1] == pytest.approx([0.0] * 16, abs=0.02)
    assert JOBS.started.count("without") > JOBS.started.count("with") == 16


def test_a_change_that_ends_the_job_is_told_with_its_last_words() -> None:
    base, changed = side("without", step_ms=100), side("with", step_ms=100, fails_after_s=3.0)
    base.start(LATER)
    with pytest.raises(TrialFailed) as failure:
        list(Turns()(base, changed, LATER))
    assert failure.value.hint == "RuntimeError: no"


def test_a_job_too_short_to_be_measured_says_so() -> None:
    with pytest.raises(TrialFailed, match="before it had made enough steps"):
        side("short", step_ms=100, steps_max=15).start(LATER)


def test_time_that_is_over_ends_the_measurement() -> None:
    base, changed = side("without", step_ms=100), side("with", step_ms=100)
    base.start(LATER)
    with pytest.raises(OutOfTime):
        list(Turns()(base, changed, time.monotonic() - 1))


def test_one_after_the_other_the_order_is_without_with_with_without() -> None:
    base, changed = side("A", step_ms=150), side("B", step_ms=100)
    looks = list(islice(one_after_the_other(base, changed, LATER), 1))
    assert JOBS.started == ["A", "B", "B", "A", "A", "B", "B", "A"]
    assert looks[0] == pytest.approx([math.log(1.5)] * 4, abs=0.02)


def test_windows_hold_some_steps_of_the_slower_job_and_two_seconds_at_least() -> None:
    quick = pairing.progress_of(recording({0: plan(30)}))
    slow = pairing.progress_of(recording({0: plan(30, forward=920)}))
    assert window_of(quick, None) == 2.0
    assert window_of(quick, slow) == pytest.approx(8 * 0.99)


def test_in_one_job_that_switches_pairs_come_from_its_blocks_also_over_several_starts() -> None:
    JOBS.natures["A/num_workers=2"] = Nature(step_ms=100)
    JOBS.natures["A"] = Nature(step_ms=150, steps_max=300)
    schedule = schedule_of(0.15, settling=6)
    change = {"kind": "call", "arguments": {"num_workers": 2}}
    live = {"variants": [[], [change]], **asdict(schedule)}
    switching = TrialSide(Order(["A"], {}, {"changes": [], "live": live}), Path("A"))
    looks = list(in_blocks(switching, schedule, 6, LATER))
    assert [len(pairs) >= look for pairs, look in zip(looks, (4, 8, 16), strict=True)] == [True] * 3
    assert looks[-1] == pytest.approx([math.log(1.5)] * len(looks[-1]), abs=0.02)
    assert JOBS.started.count("A/num_workers=2 switched") > 1


def test_blocks_hold_two_seconds_beside_the_steps_that_are_left_out() -> None:
    assert schedule_of(0.1, settling=6) == BlockSchedule(20, 26, (0, 1, 1, 0))
    assert schedule_of(1.0, settling=2) == BlockSchedule(10, 10, (0, 1, 1, 0))


def test_what_processes_have_in_common_shrinks_with_the_number_of_starts() -> None:
    assert Turns(4).shared_sd(4) == pytest.approx(pairing.PROCESS_SD)
    assert Turns(4).shared_sd(16) == pytest.approx(pairing.PROCESS_SD / 2)
    assert Turns(1).shared_sd(4) == 0.0, "pairs of processes of their own show it themselves"


def test_a_disk_that_trials_fill_ends_them_and_a_job_rests_whatever_happens() -> None:
    full = side("without", step_ms=100)
    full.has_room = lambda: False
    with pytest.raises(TrialFailed, match="fills the disk"):
        full.start(LATER)
    assert full.job is not None
    assert full.job.rested  # type: ignore[attr-defined]
