"""Where living ranks are, by their rings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.hangs.watched_ranks import Places, Watched, watched_ranks
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.rings.ring_reader import Position, RingReader
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, ERRORS_MAX, PHASE_CODE, ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring


def ring_of(folder: Path, rank: int = 1) -> Ring:
    ring = Ring(str(folder / f"rank-{rank}.ring"), slots=16, role=ROLE_RANK, rank=rank)
    ring.phase(PHASE_CODE["backward"], 7, 5000)
    return ring


def watched(ring: Ring, **given: Any) -> Watched:
    return Watched(1, os.getpid(), Path(ring.path), 0, **{"steps": 5, "outside_share": 0.0, "p99_ns": 10, **given})


def at(phase: str, *, ended: bool = False) -> Position:
    return Position(phase, 7, 5000, 0, 0, ended)


def test_a_rank_is_where_its_ring_says_now(tmp_path: Path) -> None:
    ring, places = ring_of(tmp_path), Places()
    rank = watched(ring)
    places.keep([rank])
    assert places.position(rank) == Position("backward", 7, 5000, 0, 0, False)
    ring.phase(PHASE_CODE["optimizer"], 8, 6000)
    ring.end()
    assert places.position(rank) == Position("optimizer", 8, 6000, 0, 0, True)
    places.close()
    assert places.position(rank) is None


@pytest.mark.parametrize(("errors", "known"), [(0, True), (ERRORS_MAX - 1, True), (ERRORS_MAX, False)])
def test_a_recorder_that_has_given_up_says_nothing_of_its_rank(tmp_path: Path, errors: int, known: bool) -> None:
    ring, places = ring_of(tmp_path), Places()
    ring.cost(1, errors)
    places.keep([watched(ring)])
    assert (places.position(watched(ring)) is not None) == known
    places.close()


def test_who_is_not_kept_or_has_no_ring_is_nowhere(tmp_path: Path) -> None:
    first, second, places = watched(ring_of(tmp_path, 1)), watched(ring_of(tmp_path, 2)), Places()
    gone = Watched(3, 1, tmp_path / "gone.ring", 0, 5, 0.0, 10)
    places.keep([first, gone])
    assert [places.position(rank) is not None for rank in (first, second, gone)] == [True, False, False]
    places.keep([second])
    assert [places.position(rank) is not None for rank in (first, second)] == [False, True]
    assert places.collective(gone) is None
    places.close()


def test_the_last_collective_that_it_began_is_read(tmp_path: Path) -> None:
    ring, places = ring_of(tmp_path), Places()
    rank = watched(ring)
    places.keep([rank])
    for place, word in enumerate((12, COLLECTIVE_KINDS.index("broadcast"), 99, 4, 0)):
        ring.words[COLLECTIVE_OFFSET // 8 + place] = word
    call = places.collective(rank)
    assert call is not None
    assert (call.begun, call.kind, call.group, call.size) == (12, "broadcast", 99, 4)
    places.close()


@pytest.mark.parametrize(
    ("phase", "longest_ns"),
    [("backward", 10), ("input_wait", 10), ("evaluation", 400), ("checkpoint", 400), ("ended", 400)],
)
def test_evaluations_and_checkpoints_have_a_longest_step_of_their_own(
    tmp_path: Path, phase: str, longest_ns: int
) -> None:
    assert watched(ring_of(tmp_path), whole_p99_ns=400).p99_at(at(phase)) == longest_ns


def test_only_who_has_made_a_step_and_goes_on_trains(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    assert watched(ring).trains(at("forward"))
    assert not watched(ring, steps=0).trains(at("forward"))
    assert not watched(ring).trains(at("forward", ended=True))


def test_followers_become_watched_ranks_with_what_their_facts_say(tmp_path: Path) -> None:
    followers = []
    for number in (0, 1):
        reader = RingReader(Path(ring_of(tmp_path, number).path))
        followers.append(Follower(100 + number, "rank", 1, number, reader, reader.position(), 0))
    facts: dict[int, RankFacts] = {100: {"main_thread": 77, "group_size": 8, "cuda": {"devices": 1}}}
    first, second = watched_ranks(followers, facts)
    assert (first.rank, first.pid, first.thread, first.group, first.steps) == (0, 100, 77, 8, 0)
    assert (second.rank, second.pid, second.thread, second.group) == (1, 101, None, 1)
    assert (first.on_gpu, second.on_gpu, first.median_ns) == (True, False, 0)
    assert first.ring == Path(followers[0].reader.path)
    assert watched_ranks((), facts) == ()
    for follower in followers:
        follower.reader.close()
