"""Stalls: what is usual, who goes on meanwhile, what a rank does while it stands, and whether the job went on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, SECOND, plan, recording, running, series, stall
from rn50_advisor import probes
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Stall
from rn50_advisor.advisor.model.recording import Event, Recording

USER = {"file": "/job/train.py", "line": 33, "function": "find_batch"}
SLEEPS = {"rank": 1, "state": "S", "wchan": "hrtimer_nanosleep", "cpu_s": 5.0, "user": USER, "frames": [USER]}
WAITS = {"rank": 0, "phase": "backward"}


def only(made: Recording) -> Stall:
    (found,) = analyse(made).stalls
    return found


def seen(*events: Event, plans: Any = None, **more: Any) -> Stall:
    return only(running(recording(plans or {0: plan(), 1: plan()}, events=events, **more)))


def twice(before: dict[str, Any], now: dict[str, Any], apart_s: float = 2.5) -> Stall:
    return seen(stall(15.0, WAITS, before), stall(15.0 + apart_s, WAITS, now))


@pytest.mark.parametrize(
    ("change", "halted"),
    [
        pytest.param({}, "asleep", id="it sleeps in its own line"),
        pytest.param({"cpu_s": 5.1}, "asleep", id="other threads look around"),
        pytest.param({"cpu_s": 5.2}, "", id="another thread works for it"),
        pytest.param({"cpu_s": None}, "", id="nobody knows what it used"),
        pytest.param({"state": "T"}, "stopped", id="stopped by a signal"),
        pytest.param({"state": "T", "frames": [], "user": None}, "stopped", id="stopped, and nobody may look into it"),
        pytest.param({"state": "D"}, "", id="a disk or a driver"),
        pytest.param({"state": "R"}, "", id="it runs"),
        pytest.param({"wchan": "do_wait"}, "", id="a process of its own works for it"),
        pytest.param({"wchan": "sk_wait_data"}, "", id="it fetches"),
        pytest.param({"wchan": "0"}, "", id="the kernel does not report it"),
        pytest.param({"frames": [{"function": "get", "file": "/lib/queue.py", "line": 9}, USER]}, "", id="a library"),
    ],
)
def test_what_a_rank_does_that_stands(change: dict[str, Any], halted: str) -> None:
    row = {**SLEEPS, **change}
    found = twice({**row, "cpu_s": 5.0}, row)
    assert found.ranks[1].halted == halted and found.ranks[1].culprit


WORKS = {"rank": 1, "phase": "gap", "state": "R", "wchan": "0", "cpu_s": 7.0, "user": USER, "frames": [USER]}
INSIDE = {"begun": 4, "kind": "barrier", "group": 0, "size": 2, "inside_s": 15.0}
SPINS = {"function": "barrier", "file": "/lib/site-packages/torch/distributed/distributed_c10d.py", "line": 4800}
EVENT = {"function": "Event.synchronize", "file": "/lib/site-packages/torch/cuda/streams.py", "line": 230}
LIBRARY = {"function": "bulk", "file": "/site-packages/pycocotools/cocoeval.py", "line": 9}


@pytest.mark.parametrize(
    ("before", "now", "working"),
    [
        pytest.param({}, {}, True, id="it computes"),
        pytest.param({}, {"frames": [LIBRARY, USER]}, True, id="in a library, elsewhere than before"),
        pytest.param({}, {"cpu_s": 6.25}, True, id="half of a core"),
        pytest.param({}, {"cpu_s": 6.24}, False, id="less: threads that look around"),
        pytest.param({}, {"cpu_s": None}, False, id="nobody knows what it used"),
        pytest.param({}, {"frames": [SPINS, USER]}, False, id="it spins in a collective"),
        pytest.param({}, {"frames": [EVENT, USER]}, False, id="it spins until its GPU is done"),
        pytest.param({}, {"collective": INSIDE}, False, id="in one that was counted"),
        pytest.param({"phase": "backward"}, {"phase": "backward"}, False, id="it spins in DDP's all-reduce"),
        pytest.param({}, {"state": "S", "wchan": "hrtimer_nanosleep"}, False, id="it sleeps beside a busy thread"),
        pytest.param({}, {"state": "S", "wchan": "futex", "frames": [LIBRARY, USER]}, True, id="its threads compute"),
        pytest.param({"since_ns": 7}, {}, False, id="it was elsewhere before"),
        pytest.param({"pid": 7}, {"pid": 8}, False, id="another process"),
    ],
)
def test_a_rank_works_that_uses_a_core_outside_of_collectives(before: Any, now: Any, working: bool) -> None:
    begun = stall(15.0, WAITS, WORKS).data["ranks"][1]["since_ns"]
    row = {**WORKS, "since_ns": begun}
    assert twice({**row, "cpu_s": 5.0, **before}, {**row, **now}).ranks[1].working is working


@pytest.mark.parametrize(
    ("use_pct", "working"),
    [
        pytest.param(0.0, True, id="the GPU rests"),
        pytest.param(100.0, False, id="it may spin until a kernel ends that waits for another rank"),
        pytest.param(None, False, id="nobody knows what the GPU does"),
    ],
)
def test_a_rank_on_a_gpu_works_only_where_the_gpu_rests(use_pct: float | None, working: bool) -> None:
    cuda = {"cuda": {"uuid": "GPU-1"}}
    about = {"environment": {"gpus": [{"index": 0, "name": "H100", "uuid": "GPU-1"}]}}
    samples = {} if use_pct is None else {("gpu.util_pct", "gpu:0"): series(*((n, use_pct) for n in range(20, 40)))}
    begun = stall(15.0, WORKS).data["ranks"][0]["since_ns"]
    looks = [stall(15.0 + n, WAITS, {**WORKS, "since_ns": begun, "cpu_s": 5.0 + n}) for n in (0.0, 2.5)]
    assert seen(*looks, facts={101: cuda}, meta=about, samples=samples).ranks[1].working is working


@pytest.mark.parametrize(
    ("facts", "group"),
    [
        pytest.param({"world_size": 2}, 2, id="of two, one of which is elsewhere or has ended"),
        pytest.param({"world_size": -1, "ddp": [{"world_size": 2}]}, 2, id="DDP knows better"),
        pytest.param({"world_size": 2, "ddp": [{"world_size": 1}]}, 1, id="wrapped for itself"),
        pytest.param({"world_size": -1}, 0, id="alone"),
    ],
)
def test_the_one_rank_that_is_seen_in_its_backward_waits_if_there_are_others(facts: Any, group: int) -> None:
    found = seen(stall(40.0, WAITS), plans={0: plan()}, facts={100: facts})
    assert found.group_size == group
    assert found.ranks[0].waiting_in_collective == (group > 1) and found.ranks[0].culprit == (group < 2)


def test_a_rank_that_was_stopped_waits_for_nobody_wherever_it_was() -> None:
    inside = {"collective": INSIDE}
    row = {"rank": 1, "phase": "backward", "state": "T", "cpu_s": 5.0}
    for call in ({}, inside):
        looks = [stall(after_s, {**WAITS, **call}, {**row, **call}) for after_s in (15.0, 17.5)]
        found = seen(*looks)
        assert [rank.culprit for rank in found.ranks] == [False, True]
        assert found.ranks[1].halted == "stopped" and found.ranks[0].waiting_in_collective


@pytest.mark.parametrize("change", [{"since_ns": 7}, {"user": {**USER, "line": 34}}, {"state": "R"}, {"step": 8}])
def test_who_was_elsewhere_before_does_not_halt(change: dict[str, Any]) -> None:
    assert twice({**SLEEPS, **change}, SLEEPS).ranks[1].halted == ""


def test_one_look_and_two_at_once_prove_nothing() -> None:
    assert seen(stall(17.5, WAITS, SLEEPS)).ranks[1].halted == ""
    assert twice(SLEEPS, SLEEPS, apart_s=1.0).ranks[1].halted == ""


def test_a_compiler_at_work_is_seen() -> None:
    found = seen(stall(40.0, {"rank": 0, "compiles": True}, {"rank": 1, "compiles": False}, {"rank": 2}))
    assert [rank.compiling for rank in found.ranks] == [True, False, False]


@pytest.mark.parametrize(("moved_s", "moved"), [(39.0, False), (15.0, False), (14.9, True), (0.1, True)])
def test_a_rank_that_goes_on_is_seen(moved_s: float, moved: bool) -> None:
    stalled = stall(40.0, {"rank": 1})
    stalled.data["ranks"].append({"rank": 0, "phase": "forward", "since_ns": stalled.t_ns - round(moved_s * SECOND)})
    made = analyse(running(recording({0: plan(), 1: plan()}, events=(stalled,))))
    assert made.stalls[0].others_moved == moved
    assert ("stall" in {segment.kind for segment in made.segments}) != moved, "there it says that no rank moved"


def test_a_stall_goes_on_between_two_inspections_while_no_rank_moves() -> None:
    stalled = stall(25.0, {"rank": 0}, {"rank": 1})
    since = stalled.t_ns - 25 * SECOND
    made = running(recording({0: plan(), 1: plan()}, events=(stalled,)))
    made = replace(made, meta=replace(made.meta, last_ns=stalled.t_ns + 6 * SECOND))
    there = dict.fromkeys((0, 1), ("forward", 7, since))
    found = only(replace(made, positions=there))
    assert found.stalled_s == pytest.approx(31.0) and found.ranks[0].since_s == pytest.approx(31.0)
    moved = only(replace(made, positions={**there, 1: ("backward", 7, since + 5)}))
    assert moved.stalled_s == 25.0
    over = Event(stalled.t_ns + SECOND, "stall_end", None, None, {"id": "stall-1"})
    assert only(replace(made, positions=there, events=(stalled, over))).stalled_s == 25.0
    ended = replace(made.meta, ended_ns=stalled.t_ns + 6 * SECOND)
    assert only(replace(made, positions=there, meta=ended)).stalled_s == 25.0


@pytest.mark.parametrize(("end_s", "resumed"), [(1.0, True), (60.0, False)])
def test_a_pause_is_distinguished_from_an_end(end_s: float, resumed: bool) -> None:
    """Ten seconds of steps; the stall was over before them, or after the last."""
    over = Event(FIRST_STEP_NS + round(end_s * SECOND), "stall_end", None, None, {"id": "stall-1"})
    found = only(recording({0: plan(), 1: plan()}, events=(stall(40.0, WAITS, SLEEPS), over), tail_ms={"gap": 90_000}))
    assert found.ended and found.resumed == resumed


@pytest.mark.parametrize(
    ("steps", "phase", "p99_s"),
    [
        pytest.param([*plan(1, forward=40_000), *plan(40)], "forward", 0.1, id="the first step compiles"),
        pytest.param([*plan(1, forward=40_000), *plan(5)], "forward", 38.0, id="of few steps nobody knows"),
        pytest.param(
            [*plan(30), *plan(1, evaluation=60_000), *plan(9)], "forward", 0.1, id="an evaluation is set aside"
        ),
        pytest.param([*plan(30), *plan(1, evaluation=60_000), *plan(9)], "evaluation", 30.0, id="but not for itself"),
        pytest.param([*plan(30), *plan(1, gap=9_000), *plan(9)], "forward", 5.0, id="a slow step is one"),
    ],
)
def test_the_measure_of_a_hang_is_the_slowest_usual_step(steps: list[Any], phase: str, p99_s: float) -> None:
    found = seen(stall(40.0, {"rank": 0, "phase": phase}), plans={0: steps})
    assert p99_s <= found.p99_step_s < 1.3 * p99_s


def test_a_rank_that_has_not_begun_to_train_has_no_position_that_could_change() -> None:
    waits, absent = {"rank": 0, "phase": "backward", "step": 0}, {"rank": 1, "phase": "start", "step": 0}
    stalled = stall(17.5, waits, absent)
    since = stalled.t_ns - round(17.5 * SECOND)
    made = running(recording({0: plan(), 1: plan()}, events=(stalled,)))
    made = replace(made, meta=replace(made.meta, last_ns=stalled.t_ns + 13 * SECOND))
    there = {0: ("backward", 0, since)}
    assert only(replace(made, positions=there)).stalled_s == pytest.approx(30.5)
    begun = only(replace(made, positions={**there, 1: ("backward", 0, since + 5)}))
    assert begun.stalled_s == 17.5
    assert only(replace(made, positions={})).stalled_s == 17.5, "nobody knows where they are"
    gone = only(replace(made, events=(stall(17.5, waits, {**absent, "phase": "gap"}),), positions=there))
    assert gone.stalled_s == 17.5, "it trained, and is no longer there"


def test_of_the_culprits_stack_the_innermost_frames_are_kept_without_our_own_marks() -> None:
    ours = {"function": "marked", "file": str(Path(probes.__file__).parent / "rank/patches.py"), "line": 115}
    frames = [{"function": f"f{n}", "file": f"/job/deep/part{n}.py", "line": n} for n in range(20)]
    frames.insert(1, ours)
    culprit, waits = seen(stall(40.0, {"rank": 1, "frames": frames}, {**WAITS, "frames": frames})).ranks
    assert culprit.frames == tuple(f"f{n} (part{n}.py:{n})" for n in range(8))
    assert waits.frames == ()
