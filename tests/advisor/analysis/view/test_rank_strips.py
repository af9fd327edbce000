"""A line for each rank and for each host: where it is, since when, how fast its latest steps were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodes import two_nodes, with_host_samples
from recordings import SECOND, plan, rank_process, recording, running, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.analysis.view.rank_strips import (
    host_by_rank,
    node_strips,
    rank_strips,
    shown_strip,
    with_places,
)
from rn50_advisor.advisor.model.recording import NODE_PIDS, Clock, Node, Recording
from rn50_advisor.advisor.model.report import GpuStrip, RankStrip


def strips(made: Recording) -> tuple[RankStrip, ...]:
    return rank_strips(made, all_steps(made), None)


@pytest.mark.parametrize(
    ("ended", "phase"),
    [
        ({"exit_code": 0}, "ended"),
        ({"exit_code": None}, "ended"),
        ({"exit_code": 3}, "exit 3"),
        ({"exit_code": None, "exit_signal": 9}, "killed by SIGKILL"),
        ({"exit_signal": 250}, "killed by signal 250"),
    ],
)
def test_a_rank_that_ended_says_how(ended: dict[str, Any], phase: str) -> None:
    made = recording({0: plan(3)})
    gone = rank_process(0, ended_ns=made.meta.last_ns, **ended)
    going_on = replace(made, meta=replace(made.meta, ended_ns=None), processes=(gone,))
    for seen in (replace(made, processes=(gone,)), going_on):
        (strip,) = strips(seen)
        assert (strip.alive, strip.phase, strip.phase_for_s) == (False, phase, 0.0)


def test_a_rank_that_runs_says_where_it_is_and_since_when() -> None:
    made = running(recording({0: plan(30), 1: plan(30)}))
    stands = replace(made, positions={0: ("backward", 29, made.meta.last_ns - 4 * SECOND)})
    first, second = strips(stands)
    assert (first.alive, first.phase, first.phase_for_s, first.step) == (True, "backward", 4.0, 29)
    assert (second.phase, second.phase_for_s, second.step) == ("start", 0.0, 0), "nobody knows where it stands"
    assert (first.rank, first.pid, second.pid) == (0, 100, 101)


def test_the_step_time_is_that_of_the_latest_steps() -> None:
    made = recording({0: [*plan(50), *(step(forward=130) for _ in range(20))], 1: []})
    first, second = strips(made)
    assert first.step_s == pytest.approx(0.2) and second.step_s is None


def test_late_ranks_are_reported_if_known() -> None:
    made = recording({0: plan(), 1: plan(30, forward=80)}, wire_ms=5)
    assert [strip.late_share for strip in analyse(made).ranks] == [0.0, 1.0]
    assert [strip.late_share for strip in strips(made)] == [None, None]


def hosts() -> Recording:
    """Two hosts with a rank and a GPU each; the second was lost two seconds after the start, and the first one is shown."""
    first, second = two_nodes({0: plan(30), 1: plan(30)})
    own = [with_host_samples(made, cpu__cores=16.0 * (n + 1)) for n, made in enumerate((first, second))]
    gpus = [
        replace(made, meta=replace(made.meta, environment={"gpus": [{"index": 4 + n, "index_on_host": 0}]}))
        for n, made in enumerate(own)
    ]
    clock = Clock("collectives", 5_000_000_000, uncertainty_ns=2_000_000)
    lost_ns = first.meta.started_ns + 2 * SECOND
    nodes = (Node(0, "a", (0,), gpus[0], shown=True), Node(1, "b", (1,), gpus[1], clock, lost_ns=lost_ns))
    made = recording({0: plan(30), 1: plan(30)})
    processes = (made.processes[0], replace(made.processes[1], pid=NODE_PIDS + 100))
    return replace(made, nodes=nodes, processes=processes)


def test_each_host_has_its_ranks_its_clock_and_its_own_numbers() -> None:
    one, two = node_strips(hosts())
    assert (one.host, one.ranks, one.clock, one.clock_offset_s, one.lost_after_s, one.shown) == (
        "a",
        (0,),
        "own",
        0.0,
        None,
        True,
    )
    assert (two.host, two.ranks, two.clock, two.shown) == ("b", (1,), "collectives", False)
    assert (two.clock_offset_s, two.clock_uncertainty_s, two.lost_after_s) == (5.0, 0.002, 2.0)
    assert one.strip is not None and (one.strip.name, one.strip.cores) == ("a", 16.0)
    assert two.strip is not None and (two.strip.name, two.strip.cores) == ("b", 32.0)


def test_the_shown_host_stands_for_the_job() -> None:
    strip = shown_strip(hosts())
    assert strip is not None and (strip.name, strip.cores) == ("a", 16.0)
    assert node_strips(recording({0: plan(3)})) == () and host_by_rank(recording({0: plan(3)})) == {}


def test_ranks_and_gpus_of_several_hosts_are_named_by_host_and_index() -> None:
    made = hosts()
    assert host_by_rank(made) == {0: "a", 1: "b"}
    assert [(strip.host, strip.pid) for strip in strips(made)] == [("a", 100), ("b", 100)], "as the host itself counts"
    placed = with_places((GpuStrip(4, "H200"), GpuStrip(5, "H200"), GpuStrip(9, "H200")), made)
    assert [(strip.place, strip.host) for strip in placed] == [("a, 0", "a"), ("b, 0", "b"), ("", "")]
