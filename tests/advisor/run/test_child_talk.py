"""A child of ours: lines both ways, no wait that is not asked for, and no trace of it after its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from rn50_advisor.advisor.run.child_talk import ChildTalk
from waiting import DEADLINE_S, wait_for

# answers each order with itself; `{"end": ...}` ends it with that exit code
ECHO = """
import json, os, sys
orders, answers = int(sys.argv[1]), int(sys.argv[2])
os.write(answers, b"not a document\\n")
with os.fdopen(orders) as lines:
    for line in lines:
        order = json.loads(line)
        os.write(answers, line.encode())
        if "end" in order:
            os._exit(order["end"])
"""


@pytest.fixture
def talk() -> Iterator[ChildTalk]:
    found = ChildTalk("prepared_child", ECHO, number=1)
    yield found
    if found.status is None:
        found.kill()
        os.waitpid(found.pid, 0)


def test_what_is_posted_arrives_and_what_is_answered_is_heard(talk: ChildTalk) -> None:
    talk.post(number=2)
    heard: list[object] = []
    wait_for(lambda: heard.extend(talk.heard()) or len(heard) == 2, "two answers")
    assert heard == [{"number": 1}, {"number": 2}] and talk.unsent_bytes == 0 and talk.reap() is None


def test_its_end_is_waited_for_and_its_status_kept(talk: ChildTalk) -> None:
    talk.post(end=3)
    assert talk.wait(time.monotonic() + DEADLINE_S)
    assert talk.status is not None and os.waitstatus_to_exitcode(talk.status) == 3
    assert talk.reap() == talk.status
    with pytest.raises(ProcessLookupError):
        os.kill(talk.pid, 0)
    talk.post(number=4)  # nobody is there


def test_a_child_that_does_not_read_holds_nobody_up(talk: ChildTalk) -> None:
    os.kill(talk.pid, signal.SIGSTOP)
    talk.post(text="x" * 1_000_000)
    assert talk.unsent_bytes > 0
    assert not talk.wait(time.monotonic())
    talk.kill()
    assert wait_for(talk.reap, "its end") == signal.SIGKILL


def test_after_hanging_up_nothing_is_said_or_heard_and_the_child_reads_the_end(talk: ChildTalk) -> None:
    held = [number for number in (talk.answers, talk._orders) if number is not None]
    talk.hang_up()
    for number in held:
        with pytest.raises(OSError):
            os.fstat(number)
    talk.hang_up()
    talk.post(number=2)
    assert len(held) == 2 and talk.heard() == [] and talk.wait(time.monotonic() + DEADLINE_S)
