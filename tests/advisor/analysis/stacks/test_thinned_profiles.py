"""Profiles of a job that runs for days: neither their result nor its computing time depends on how many there are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from recordings import FIRST_STEP_NS, SECOND, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.stacks.thinned_profiles import with_few_profiles
from rn50_advisor.advisor.model.recording import Event, Recording

USER = {"function": "train", "file": "/job/train.py", "line": 7, "text": "log(loss)"}


def profile(n: int, *, rank: int = 0, asleep: bool = False) -> Event:
    row: dict[str, Any] = {"count": 400, "frames": [USER], "user": USER, **({"awake": 400} if asleep else {})}
    return Event(
        FIRST_STEP_NS + n * SECOND, "profile", 100 + rank, rank, {"outside_share": 1.0, "looks": 400, "stacks": [row]}
    )


def long(*events: Event, ranks: int = 1) -> Recording:
    return recording({rank: plan(30) for rank in range(ranks)}, events=events)


def profiles(made: Recording) -> list[Event]:
    return [event for event in made.events if event.kind == "profile"]


def test_few_profiles_are_all_gone_through() -> None:
    made = long(*(profile(n) for n in range(40)))
    assert with_few_profiles(made) is made


def test_of_thousands_some_are_over_all_of_the_time() -> None:
    kept = profiles(with_few_profiles(long(*(profile(n) for n in range(5000)))))
    times = [(event.t_ns - FIRST_STEP_NS) // SECOND for event in kept]
    assert len(times) == 40
    assert times[0] == 0 and times[-1] == 4999
    assert max(b - a for a, b in pairwise(times)) < 150


def test_each_rank_keeps_some_profiles_and_some_of_the_rare_ones_with_awake_counts() -> None:
    made = long(*(profile(n, rank=n % 8, asleep=n % 100 < 8) for n in range(800)), ranks=8)
    kept = [(event.rank, "awake" in event.data["stacks"][0]) for event in profiles(with_few_profiles(made))]
    assert len(kept) <= 40
    assert set(kept) == {(rank, asleep) for rank in range(8) for asleep in (False, True)}


def test_other_events_stay() -> None:
    other = Event(FIRST_STEP_NS, "holder", 100, 0, {})
    assert with_few_profiles(long(other, *(profile(n) for n in range(100)))).events[0] is other


def test_an_analysis_goes_through_no_more_than_enough() -> None:
    analysis = analyse(long(*(profile(n) for n in range(1000))))
    assert sum(line.samples for line in analysis.hot_lines) == 40 * 400
