"""Looks into ranks that are outside the model, or that sleep inside it: what is taken, how often, and what becomes of a refusal."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.hangs.watched_ranks import Places, Watched
from rn50_advisor.advisor.run.stacks import outside_sampler
from rn50_advisor.advisor.run.stacks.outside_sampler import OutsideSampler
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.advisor.run.stacks.stack_looker import Looker
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack
from rn50_advisor.probes.rank.layout import PHASE_CODE, ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring

STUCK = Frame("find_batch", "/job/train.py", 33)
PROFILE = (CountedStack(None, "MainThread", (STUCK,), 9),)


class Rank:
    """In its backward pass, and looked into as often as is asked for."""

    def __init__(self, ring: Ring, looker: Looker, **given: Any) -> None:
        usual = {"steps": 5, "outside_share": 0.0, "p99_ns": 0}
        self.watched = Watched(1, os.getpid(), Path(ring.path), 0, **{**usual, **given})
        self.ring = ring
        self.news: list[Any] = []
        self.places = Places()
        self.places.keep([self.watched])
        self._looks = OutsideSampler(
            StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=9, dense_s=0.0),
            places=self.places,
            looker=looker,
            post=self.news.append,
            pause=lambda seconds: True,
        )

    def look(self, makers: Collection[int] = ()) -> None:
        at = self.places.position(self.watched)
        assert at is not None
        self._looks.look([(self.watched, at)], makers)


MadeRank = Callable[..., Rank]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[MadeRank]:
    ring = Ring(str(tmp_path / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=1)
    ring.phase(PHASE_CODE["backward"], 7, 5000)
    made: list[Rank] = []

    def make(looker: Looker, **given: Any) -> Rank:
        made.append(Rank(ring, looker, **given))
        return made[-1]

    yield make
    for one in made:
        one.places.close()


@pytest.mark.parametrize(("phase", "samples"), [("evaluation", 1), ("checkpoint", 0)])
def test_an_evaluation_is_sampled_and_never_profiled(rank: MadeRank, phase: str, samples: int) -> None:
    stacks = (ThreadStack(None, "MainThread", True, True, (STUCK,)),)
    one = rank(Looker(dump=lambda pid: stacks, profile=lambda pid: pytest.fail("a profile")), outside_share=0.3)
    one.ring.phase(PHASE_CODE[phase], 7, 5000)
    one.look()
    assert [event.data["phase"] for event in one.news] == ["evaluation"] * samples


@pytest.mark.parametrize("asleep_share", [0.0, 0.3])
def test_who_sleeps_in_its_steps_is_looked_at_with_and_without_its_sleep(rank: MadeRank, asleep_share: float) -> None:
    frames = (Frame("read", "/lib/socket.py", 7), STUCK)
    whole = (CountedStack(None, "MainThread", frames, 80), CountedStack(None, "MainThread", (STUCK,), 9))
    awake = (CountedStack(None, "MainThread", (STUCK,), 8),)
    sleeper = rank(Looker(profile=lambda pid: whole, profile_awake=lambda pid: awake), asleep_share=asleep_share)
    for _ in range(2):  # the second time comes too soon
        sleeper.look()
    counts = [[(row["count"], row["awake"]) for row in event.data["stacks"]] for event in sleeper.news]
    assert counts == ([[(80, 0), (9, 8)]] if asleep_share else [])


@pytest.mark.parametrize(
    ("outside_share", "awake"),
    [
        pytest.param(0.3, [True, False, False, False, False, True], id="outside, too"),
        pytest.param(0.0, [True, True], id="asleep alone"),
    ],
)
def test_its_sleep_is_looked_at_less_often_than_the_time_outside_the_model(
    rank: MadeRank, monkeypatch: pytest.MonkeyPatch, outside_share: float, awake: list[bool]
) -> None:
    looker = Looker(profile=lambda pid: PROFILE, profile_awake=lambda pid: PROFILE)
    sleeper = rank(looker, asleep_share=0.3, outside_share=outside_share)
    for now_s in range(1000, 1651, 130):
        monkeypatch.setattr(outside_sampler.time, "monotonic", lambda now_s=now_s: float(now_s))
        sleeper.look()
    monkeypatch.undo()
    assert ["awake" in event.data["stacks"][0] for event in sleeper.news] == awake


def test_a_pass_that_is_long_beside_the_other_is_looked_into_as_seldom(
    rank: MadeRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker = Looker(profile=lambda pid: PROFILE, profile_awake=lambda pid: pytest.fail("it does not sleep"))
    for share, profiles in ((0.05, 2), (0.04, 0)):
        long = rank(looker, uneven_share=share)
        for now_s in range(1000, 1651, 130):
            monkeypatch.setattr(outside_sampler.time, "monotonic", lambda now_s=now_s: float(now_s))
            long.look()
        assert len(long.news) == profiles
    monkeypatch.undo()


def test_who_makes_batches_that_are_waited_for_is_looked_into_as_seldom(
    rank: MadeRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = rank(Looker(profile=lambda pid: PROFILE))
    for now_s in range(1000, 1651, 130):
        monkeypatch.setattr(outside_sampler.time, "monotonic", lambda now_s=now_s: float(now_s))
        loading.look(makers=[os.getpid()])
    monkeypatch.undo()
    assert len(loading.news) == 2


@pytest.mark.parametrize(
    ("given", "profiles"),
    [
        ({}, 2),
        ({"steps": 19}, 0),  # the first steps are not like the later ones
        ({"median_ns": 700_000_001}, 0),  # a profile would show a part of a step
        ({"median_ns": 0}, 0),
        ({"on_gpu": True}, 0),
    ],
)
def test_all_that_train_on_cpus_in_short_steps_are_looked_into_as_seldom(
    rank: MadeRank, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], profiles: int
) -> None:
    training = rank(Looker(profile=lambda pid: PROFILE), **{"steps": 20, "median_ns": 100_000_000, **given})
    for now_s in range(1000, 1651, 130):
        monkeypatch.setattr(outside_sampler.time, "monotonic", lambda now_s=now_s: float(now_s))
        training.look()
    monkeypatch.undo()
    assert len(training.news) == profiles


def test_that_its_sleep_could_not_be_looked_at_is_a_gap_beside_its_profile(rank: MadeRank) -> None:
    gap = ProbeGap("stacks", "pid:1", "py-spy did not answer in 12 s")
    sleeper = rank(Looker(profile=lambda pid: PROFILE, profile_awake=lambda pid: gap), asleep_share=0.3)
    for _ in range(2):  # the second time comes too soon
        sleeper.look()
    posted, event = sleeper.news
    assert posted == gap and event.kind == "profile" and "awake" not in event.data["stacks"][0]


def test_a_profile_that_is_refused_is_not_asked_for_twice_over(rank: MadeRank) -> None:
    gap = ProbeGap("stacks", "pid:1", "not permitted to read the process's memory")
    looker = Looker(profile=lambda pid: gap, profile_awake=lambda pid: pytest.fail("it was refused just now"))
    sleeper = rank(looker, asleep_share=0.3)
    for _ in range(3):
        assert not looker.refused
        sleeper.look()
    assert sleeper.news == [gap] * 3 and looker.refused


@pytest.mark.parametrize("makes", [True, False])
def test_the_profile_of_a_rank_that_makes_its_batches_shows_how_with_the_rare_stacks(
    rank: MadeRank, makes: bool
) -> None:
    fetch = Frame("fetch", "/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 54)
    inner = [Frame("take", "/env/lib/python3.11/site-packages/pandas/core/series.py", line) for line in range(100)]
    own = Frame("__getitem__", "/job/data.py", 47)
    stacks = tuple(CountedStack(None, "MainThread", (frame, own, fetch, STUCK), 1) for frame in inner)
    loading = rank(Looker(profile=lambda pid: (*PROFILE, *stacks)), outside_share=0.3)
    loading.look(makers=[os.getpid()] if makes else [])
    (event,) = loading.news
    user = {"function": "__getitem__", "file": "/job/data.py", "line": 47}
    row = {"user": user, "awaits": None, "table": "pandas", "count": 100}
    assert event.data.get("making") == ([row] if makes else None)
