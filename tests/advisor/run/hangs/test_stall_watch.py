"""When standing still is a stall, and when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.run.hangs.stall_watch import RankSight, StallClock, StallState

S = 1_000_000_000
AFTER_S = 15.0


def sight(rank: int = 0, **changes: object) -> RankSight:
    return replace(RankSight(rank, 100 + rank, "forward", 7, since_ns=0, steps=7), **changes)  # type: ignore[arg-type]


def clock() -> StallClock:
    return StallClock(after_s=AFTER_S, refresh_s=10.0)


@pytest.mark.parametrize(
    ("seen", "at_s", "stalls"),
    [
        (sight(), 14.9, False),
        (sight(), 15.0, True),
        (sight(steps=0), 100.0, False),  # it never trained: start-up takes what it takes
        (sight(p99_ns=2 * S), 19.9, False),  # steps of two seconds: ten of them
        (sight(p99_ns=2 * S), 20.0, True),
        (sight(since_ns=10 * S), 24.9, False),
        (sight(phase="evaluation"), 15.0, True),  # what it means is not said here
    ],
)
def test_a_rank_stalls_when_it_stands_still_long_enough(seen: RankSight, at_s: float, stalls: bool) -> None:
    state = clock().look(round(at_s * S), [seen])
    assert (state is not None) == stalls
    if state is not None:
        assert state == StallState("stall-1", seen.since_ns, round(at_s * S) - seen.since_ns)


def test_a_stall_is_reported_again_under_the_same_id_ever_more_rarely() -> None:
    c, reported = clock(), []
    for second in range(15, 1200):
        state = c.look(second * S, [sight()])
        if state is not None:
            assert state.id == "stall-1"
            reported.append(second)
    assert reported[:5] == [15, 18, 25, 35, 45]  # the second one shows whether it sleeps or works
    assert len(reported) < 40  # an hour's hang shall not fill the disk
    assert reported[-1] - reported[-2] > 60


@pytest.mark.parametrize(
    "moved",
    [{"step": 8}, {"phase": "backward"}, {"since_ns": 16 * S}, {"pid": 999}],
    ids=["a step", "a phase", "the same phase anew", "another process"],
)
def test_it_ends_when_a_rank_moves(moved: dict[str, object]) -> None:
    c = clock()
    c.look(20 * S, [sight(0), sight(1)])
    assert c.look(21 * S, [sight(0), sight(1)]) is None
    state = c.look(22 * S, [sight(0), sight(1, **moved)])
    assert state == StallState("stall-1", 0, 22 * S, ended=True)


def test_it_ends_when_a_rank_dies_or_the_run_does() -> None:
    c = clock()
    c.look(20 * S, [sight(0), sight(1)])
    ended = c.look(21 * S, [sight(0)])
    assert ended is not None and ended.ended
    again = c.look(22 * S, [sight(0)])
    assert again is not None and again.id == "stall-2"
    assert c.end(23 * S) == StallState("stall-2", 0, 23 * S, ended=True)
    assert c.end(24 * S) is None


def test_one_rank_that_goes_on_does_not_hide_one_that_stands() -> None:
    c = clock()
    state = c.look(20 * S, [sight(0, since_ns=19 * S), sight(1)])
    assert state is not None
    assert c.look(21 * S, [sight(0, since_ns=20 * S, step=8), sight(1)]) is None  # not over either


def test_time_that_we_slept_ourselves_is_nobodys_stall() -> None:
    c = clock()
    c.woke_up(1000 * S)
    assert c.look(1001 * S, [sight()]) is None
    state = c.look(1015 * S, [sight()])
    assert state is not None and state.stalled_ns == 15 * S


@pytest.mark.parametrize(
    ("ranks", "phase", "at_s", "stalls"),
    [
        (2, "backward", 14.9, False),
        (2, "backward", 15.0, True),  # what it means, a compiler or a rank that never came, is not said here
        (2, "gap", 15.0, True),  # on a GPU the host waits where it reads the loss
        (2, "forward", 900.0, False),
        (1, "backward", 900.0, False),  # a warm-up of something that then waits for work
    ],
)
def test_a_first_step_that_does_not_end_is_a_stall_of_ranks_that_need_each_other(
    ranks: int, phase: str, at_s: float, stalls: bool
) -> None:
    state = clock().look(round(at_s * S), [sight(n, steps=0, phase=phase) for n in range(ranks)])
    assert (state is not None) == stalls


def test_a_first_step_stalls_too_where_the_other_rank_has_not_begun_its_own() -> None:
    waits = sight(steps=0, phase="backward", group=2)
    assert clock().look(round(14.9 * S), [waits]) is None
    assert clock().look(15 * S, [waits]) is not None


def test_a_first_step_that_compiles_is_looked_into_twice_and_then_rarely() -> None:
    c, reported = clock(), []
    for second in range(15, 300):
        if c.look(second * S, [sight(n, steps=0, phase="backward") for n in range(2)]) is not None:
            reported.append(second)
    assert reported == [15, 18, 75, 135, 195, 255], "each look costs, and the job has not even begun"
