"""Stalls with a period: in steps or in seconds, on which rank, with what; and stalls without one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from noisy_runs import noisy_plan
from recordings import epoch_starts, plan, recording

from advisor.analysis.analyse import analyse
from advisor.core.analysis import PeriodicStall
from advisor.core.recording import Recording

Plan = list[dict[str, float]]


def pulse(made: Recording) -> PeriodicStall | None:
    return analyse(made).pulse


def stalling(steps: Plan, when: Callable[[int], bool], **more: float) -> Plan:
    """The same steps, these phases longer in some of them."""
    return [
        {**s, **{name: s.get(name, 0.0) + ms for name, ms in more.items()}} if when(n) else s
        for n, s in enumerate(steps)
    ]


@pytest.mark.parametrize("every", [3, 7, 10, 25, 40])
@pytest.mark.parametrize(("phase", "named"), [("gap", "gap"), ("forward", "forward"), ("input_wait", "input_wait")])
def test_the_period_and_the_phase_are_found(every: int, phase: str, named: str) -> None:
    found = pulse(recording({0: stalling(noisy_plan(1, 300), lambda n: n % every == 0, **{phase: 150})}))
    assert found is not None
    assert found.period_steps == every and found.phase == named and found.coincides == ""
    assert found.stall_s == pytest.approx(0.15, abs=0.02)
    assert found.share == pytest.approx(150 / every / (100 + 150 / every), abs=0.02)


def test_a_few_stalls_more_or_less_do_not_hide_the_period() -> None:
    missing, extra = {40, 130}, {17, 78}
    steps = stalling(noisy_plan(2, 300), lambda n: (n % 10 == 0 and n not in missing) or n in extra, gap=120)
    found = pulse(recording({0: steps}))
    assert found is not None and found.period_steps == 10


def test_a_period_in_seconds_is_one_too() -> None:
    """Something on the machine comes every four seconds, whatever step is made just then."""
    random, now, next_at, steps = np.random.default_rng(5), 0.0, 4.0, []
    for s in noisy_plan(3, 400):
        long = {**s, "forward": s["forward"] + float(random.uniform(0, 40))}
        took = sum(long.get(name, 0.0) for name in ("input_wait", "forward", "backward", "optimizer")) / 1000
        if now + took >= next_at:
            long["forward"] += 400
            took += 0.4
            next_at += 4.0
        now += took
        steps.append(long)
    found = pulse(recording({0: steps}))
    assert found is not None and found.period_s == pytest.approx(4.0, rel=0.1)


def test_the_rank_that_stalls_is_told_from_those_that_wait() -> None:
    ranks = {0: noisy_plan(1, 200), 1: stalling(noisy_plan(2, 200), lambda n: n % 20 == 5, forward=150)}
    found = pulse(recording(ranks))
    assert found is not None and (found.rank, found.phase) == (1, "forward")
    together = pulse(recording({rank: stalling(p, lambda n: n % 20 == 5, gap=150) for rank, p in ranks.items()}))
    assert together is not None and together.rank is None


@pytest.mark.parametrize(
    ("phase", "name"), [("evaluation", "an evaluation"), ("checkpoint", "a checkpoint"), ("gc", "a garbage collection")]
)
def test_what_coincides_is_named(phase: str, name: str) -> None:
    more = {"gap": 150.0, "gc": 140.0} if phase == "gc" else {phase: 150.0}
    found = pulse(recording({0: stalling(noisy_plan(1, 200), lambda n: n % 10 == 3, **more)}))
    assert found is not None and found.coincides == name


def test_the_begin_of_epochs_is_named() -> None:
    found = pulse(recording({0: epoch_starts(noisy_plan(1, 200), 10, input_wait=160)}))
    assert found is not None and found.coincides == "an epoch begins"


def scattered(n: int) -> bool:
    return n in {11, 29, 34, 80, 86, 131, 170, 181, 243, 255, 290}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(noisy_plan(1, 300), id="noise"),
        pytest.param(stalling(noisy_plan(1, 300), scattered, gap=300), id="stalls at random"),
        pytest.param(
            stalling(noisy_plan(1, 300), lambda n: n < 30 and n % 4 == 0, gap=200), id="a hiccup at the start"
        ),
        pytest.param(stalling(noisy_plan(1, 300), lambda n: n % 80 == 9, gap=200), id="four are not enough"),
        pytest.param(
            stalling(noisy_plan(1, 300), lambda n: n % 2 == 0, gap=50), id="every second step is another kind"
        ),
        pytest.param(stalling(noisy_plan(1, 300), lambda n: n % 10 == 0, gap=12), id="a tenth longer is no stall"),
        pytest.param(stalling(plan(20), lambda n: n % 4 == 0, gap=200), id="too short"),
    ],
)
def test_what_has_no_period_is_none(steps: Plan) -> None:
    assert pulse(recording({0: steps})) is None
