"""Looks at training threads that sleep inside the model: their number, their records, and when stacks are worth the cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.stacks.interpreter_sampler import InterpreterSampler, Suspect, holder_of
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.probes.host.process.interpreter_lock import NoInterpreter
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack, parse_dump

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
        self.looks = InterpreterSampler(
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


def test_samples_are_posted_in_groups_and_the_last_ones_at_the_end(clock: Callable[[float], None]) -> None:
    eyes = Eyes(20)
    watch = Watch(eyes, ())
    for _ in range(12):
        watch.looks.look([ME])
    watch.looks.close()
    rows = [event.data for event in watch.events("interpreter")]
    assert [row["looks"] for row in rows] == [30, 30, 12]
    # looks until it is caught waiting are none of the sample
    assert sum(row["looks"] for row in rows) == 72 and eyes.closed
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


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), NoInterpreter("not Python")])
def test_a_refusal_is_posted_once(clock: Callable[[float], None], error: Exception) -> None:
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
            (thread(None, LAYER, owns=True, main=True),), id="a Python that does not give its threads' numbers"
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
