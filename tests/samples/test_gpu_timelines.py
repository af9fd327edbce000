"""Hosts and streams of the simulator: who waits for whom, and until when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from samples.gpus.streams.timelines import QUEUE_DEPTH, Host, World

US = 1_000


def run(body: Callable[[Host], None], ranks: int = 1) -> World:
    world = World(ranks, 0, lambda now_ns: None, every_ns=1 << 60)
    world.run(body)
    return world


@pytest.mark.parametrize(
    ("each_us", "launch_us", "end_us"),
    [(10, 2, 2 + 100), (2, 10, 100 + 2), (5, 5, 5 + 50)],
)
def test_a_burst_runs_at_the_pace_of_whoever_is_slower(each_us: int, launch_us: int, end_us: int) -> None:
    ends = []
    run(lambda host: ends.append(host.launch(10, each_us * US, launch_us * US).end_ns))
    assert ends == [end_us * US]


def test_a_host_runs_ahead_until_the_queue_is_full() -> None:
    ahead = []

    def body(host: Host) -> None:
        for _ in range(200):
            host.launch(16, 100 * US, 1 * US)
            ahead.append(host.device.waiting)
        assert host.now_ns > 200 * 16 * US, "it had to wait for the GPU"

    run(body)
    assert max(ahead) == QUEUE_DEPTH


def test_a_read_waits_for_all_that_is_queued() -> None:
    def body(host: Host) -> None:
        work = host.launch(10, 100 * US, 1 * US)
        assert not host.has_passed(work) and host.now_ns == 10 * US
        host.wait(work)
        assert host.has_passed(work) and host.now_ns == host.cpu_ns == 1001 * US, "the thread spins"

    run(body)


def test_a_collective_ends_everywhere_when_the_last_has_come_and_the_wire_is_done() -> None:
    ends = {}

    def body(host: Host) -> None:
        computed = host.launch(1, (100 + 50 * host.rank) * US, 1 * US)
        work = host.meet("gradients", 3, 30 * US, 0, computed, stream="exchange")
        host.mark(after=(work,))
        assert host.now_ns == 1 * US, "no host waits"
        ends[host.rank] = host.launch(1, 10 * US, 1 * US)

    run(body, ranks=3)
    assert {rank: work.end_ns for rank, work in ends.items()} == dict.fromkeys(range(3), (1 + 200 + 30 + 10) * US)


def test_what_a_host_asks_does_not_depend_on_who_ran_first() -> None:
    """Rank 1 joins later in simulated time, but its thread may run first."""
    for late in (0, 1):
        seen = {}

        def body(host: Host, late: int = late, seen: dict[int, bool] = seen) -> None:
            host.work(500 * US if host.rank == late else 0)
            work = host.meet("all", 2, 10 * US, 0, stream="exchange")
            host.work(20 * US)
            seen[host.rank] = host.has_passed(work)

        run(body, ranks=2)
        assert seen == {late: True, 1 - late: False}


def test_ranks_that_wait_for_each_other_for_ever_are_an_error() -> None:
    def body(host: Host) -> None:
        host.wait(host.meet(("all", host.rank), 2, 10 * US, 0, stream="exchange"))

    with pytest.raises(RuntimeError, match="do not match"):
        run(body, ranks=2)


def test_the_agent_sees_every_moment_before_any_host_goes_beyond_it() -> None:
    seen = []

    def body(host: Host) -> None:
        for _ in range(10):
            host.work(300 * US)
            host.has_passed(host.mark())

    world = World(2, 0, lambda now_ns: seen.append((now_ns, min(h.now_ns for h in world.hosts))), every_ns=US * 1000)
    world.run(body)
    assert [now_ns for now_ns, _ in seen] == [1000 * US, 2000 * US, 3000 * US]
    assert all(behind_ns >= now_ns for now_ns, behind_ns in seen)
