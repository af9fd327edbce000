"""Looks at training threads that sleep inside the model: how many, what is told of them, and when stacks are worth their cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.rings.ring_reader import Position
from rn50_advisor.advisor.run.stacks.interpreter_looks import InterpreterLooks, Suspect, holder_of
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.probes.host.process.interpreter_lock import NoInterpreter
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack, parse_dump
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER, FLAG_TAIL, STEP_FIELDS

ME = Suspect(3, os.getpid(), os.getpid())
TRAINING, SENDER = 7, 9
ENCODE, SEND = Frame("encode", "/usr/lib/python3.11/json/encoder.py", 200), Frame("send", "/job/train.py", 31)
LAYER = Frame("forward", "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 134)


def thread(number: int | None, *frames: Frame, owns: bool = False, main: bool = False) -> ThreadStack:
    return ThreadStack(number, "MainThread" if main else "sender", main, True, frames, owns)


HELD = (thread(TRAINING, LAYER, main=True), thread(SENDER, ENCODE, SEND, owns=True))


class Eyes:
    """Sees the training thread wait in so many of a hundred looks, or fails."""

    def __init__(self, percent: int, error: Exception | None = None) -> None:
        self.percent, self.error, self.looks, self.closed = percent, error, 0, False

    def waits(self) -> bool:
        if self.error:
            raise self.error
        self.looks += 1
        return (self.looks * self.percent) // 100 > ((self.looks - 1) * self.percent) // 100

    def close(self) -> None:
        self.closed = True


class Watch:
    def __init__(self, eyes: Eyes, stacks: tuple[ThreadStack, ...] | ProbeGap = HELD) -> None:
        self.posted: list[Event | ProbeGap] = []
        self.dumped = 0
        self.stacks = stacks
        budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=5, dense_s=0.0)
        self.looks = InterpreterLooks(
            budget, dump=self.dump, post=self.posted.append, pause=lambda s: False, sight=lambda pid, tid: eyes
        )

    def dump(self, pid: int) -> tuple[tuple[ThreadStack, ...] | ProbeGap, float]:
        self.dumped += 1
        return self.stacks, 0.01

    def events(self, kind: str) -> list[Event]:
        return [event for event in self.posted if isinstance(event, Event) and event.kind == kind]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def ahead(seconds: float) -> None:
        now[0] += seconds

    return ahead


def test_what_the_looks_found_is_told_in_groups_and_to_the_last_one(clock: Callable[[float], None]) -> None:
    eyes = Eyes(20)
    watch = Watch(eyes, ())
    for _ in range(12):
        watch.looks.look([ME])
    watch.looks.close()
    told = [event.data for event in watch.events("interpreter")]
    assert [row["looks"] for row in told] == [30, 30, 12]
    # looks until it is caught waiting are none of the sample
    assert sum(row["looks"] for row in told) == 72 and eyes.closed
    assert all(event.rank == 3 and event.data["since_ns"] <= event.t_ns for event in watch.events("interpreter"))


def test_stacks_are_taken_only_where_it_was_found_waiting(clock: Callable[[float], None]) -> None:
    sound, held = Watch(Eyes(0)), Watch(Eyes(50))
    for _ in range(10):
        clock(1.0)
        sound.looks.look([ME])
        held.looks.look([ME])
    assert sound.dumped == 0
    assert held.dumped > 0
    holder = held.events("holder")[0].data
    assert holder["thread"] == "sender"
    assert (holder["user"]["function"], holder["user"]["line"]) == ("send", 31)


def test_after_many_looks_they_become_rare(clock: Callable[[float], None]) -> None:
    eyes = Eyes(0)
    watch = Watch(eyes)
    for _ in range(200):
        watch.looks.look([ME])
    assert 400 <= eyes.looks < 430
    clock(60.0)
    watch.looks.look([ME])
    assert eyes.looks >= 406


def test_nobody_is_looked_at_who_does_not_sleep(clock: Callable[[float], None]) -> None:
    eyes = Eyes(50)
    watch = Watch(eyes)
    watch.looks.look([])
    assert eyes.looks == 0 and not watch.posted


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), NoInterpreter("no Python")])
def test_a_refusal_is_told_once(clock: Callable[[float], None], error: Exception) -> None:
    watch = Watch(Eyes(50, error))
    for _ in range(5):
        watch.looks.look([ME])
    (gap,) = watch.posted
    assert isinstance(gap, ProbeGap) and gap.metric == "interpreter"


def test_a_thread_that_has_ended_is_no_refusal(clock: Callable[[float], None]) -> None:
    watch = Watch(Eyes(50, ProcessLookupError(3, "No such process")))
    watch.looks.look([ME])
    assert not watch.posted


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param(
            (thread(TRAINING, LAYER, owns=True, main=True), thread(SENDER, SEND)), id="the training thread has it"
        ),
        pytest.param(
            (thread(TRAINING, LAYER, main=True), thread(SENDER, SEND)), id="nobody has it: a wait in a driver"
        ),
        pytest.param(
            (thread(None, LAYER, owns=True, main=True),), id="a Python that does not tell its threads' numbers"
        ),
    ],
)
def test_without_another_owner_nobody_is_named(stacks: tuple[ThreadStack, ...]) -> None:
    assert holder_of(stacks, TRAINING) is None


def test_who_owns_the_interpreter_is_read_from_py_spy() -> None:
    text = """[
      {"pid": 7, "os_thread_id": 9, "thread_name": "sender", "active": true, "owns_gil": true, "frames": []},
      {"pid": 7, "os_thread_id": 7, "thread_name": "MainThread", "active": false, "owns_gil": false, "frames": []},
      {"pid": 7, "os_thread_id": 8, "thread_name": "old", "active": false, "frames": []}
    ]"""
    assert [stack.owns_gil for stack in parse_dump(text)] == [True, False, False]


def follower(steps: int, flags: int = FLAG_CLOCKED, **ms: float) -> Follower:
    """Steps of 100 ms."""
    reader: Any = None
    made = Follower(7, "rank", 1, 0, reader, Position("gap", 1, 0, 0, 0, False), 0)
    given = {"t_end_ns": 100_000_000, **{f"{name}_ns": int(value * 1e6) for name, value in ms.items()}}
    made.note_steps([(flags, tuple(given.get(name, 0) for name in STEP_FIELDS))] * steps)
    return made


WORKS = {"forward": 30, "forward_cpu": 30, "backward": 50, "backward_cpu": 50, "optimizer": 20, "optimizer_cpu": 20}


@pytest.mark.parametrize(
    ("given", "alone", "share"),
    [
        (WORKS, True, 0.0),
        ({**WORKS, "forward_cpu": 10, "optimizer_cpu": 10, "backward_cpu": 20}, True, 0.6),
        (
            {**WORKS, "forward_cpu": 10, "optimizer_cpu": 10, "backward_cpu": 50},
            False,
            0.6,
        ),  # others are waited for in the backward: the rest tells
        ({**WORKS, "forward_cpu": 10, "run_delay": 20}, True, 0.0),  # in line for a core
        ({**WORKS, "forward": 20, "clip": 10, "forward_cpu": 20}, True, 0.1),
        ({**WORKS, "run_delay": 5}, True, 0.0),
        ({**WORKS, "forward_cpu": 10, "run_delay": 20}, False, 0.2),
        ({**WORKS, "forward_cpu": 20, "backward_cpu": 40, "run_delay": 20}, False, 0.0),
    ],
)
def test_time_that_no_clock_explains_is_asleep(given: dict[str, float], alone: bool, share: float) -> None:
    assert follower(5, **given).asleep_share(alone=alone) == pytest.approx(share)


def test_without_clocks_nobody_is_suspected() -> None:
    asleep = {**WORKS, "forward_cpu": 0}
    assert follower(20, 0, **asleep).asleep_share(alone=True) == 0.0
    assert follower(2, **asleep).asleep_share(alone=True) == 0.0
    assert follower(5, FLAG_CLOCKED | FLAG_TAIL, **asleep).asleep_share(alone=True) == 0.0


@pytest.mark.parametrize(
    ("flags", "given", "share"),
    [
        (0, {"forward": 30, "backward": 50}, 0.05),
        (0, {"forward": 25, "backward": 60}, 0.0),
        (FLAG_NO_LOADER, {"forward": 60, "backward": 20}, 0.0),  # the fetch may be in there
        (FLAG_TAIL, {"forward": 60, "backward": 20}, 0.0),
    ],
)
def test_a_forward_pass_of_more_than_half_of_its_backward_pass_is_long(
    flags: int, given: dict[str, float], share: float
) -> None:
    assert follower(5, flags, **given).long_forward_share == pytest.approx(share)
