"""Calls that are not waited for longer than said, and of which few are left behind."""

from __future__ import annotations

import threading

import pytest

from rn50_advisor.advisor.outlets.timed_call import TimedCalls

ENOUGH_S = 30.0


def test_a_call_gives_what_its_work_gives_or_raises() -> None:
    in_time = TimedCalls(1)
    assert in_time(lambda: 3, ENOUGH_S) == 3
    with pytest.raises(KeyError):
        in_time(lambda: {}[0], ENOUGH_S)


def test_what_does_not_answer_is_left_behind_and_few_of_them_are() -> None:
    in_time, answer = TimedCalls(2), threading.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            in_time(answer.wait, 0.01)
    called = []
    with pytest.raises(TimeoutError):
        in_time(lambda: called.append(1), ENOUGH_S)
    assert called == []
    answer.set()
    for thread in in_time._unanswered:
        thread.join(ENOUGH_S)
    assert in_time(lambda: "again", ENOUGH_S) == "again"
