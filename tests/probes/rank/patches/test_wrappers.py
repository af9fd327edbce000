"""Wrappers around functions of torch return and raise what these do, and swallow errors of the recorder."""

from __future__ import annotations

import inspect
import sys
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches.wrappers import around, count_error, quietly


class Recorder:
    def __init__(self) -> None:
        self.active, self.errors, self.facts = True, 0, SimpleNamespace(values={})

    def failed(self) -> None:
        self.errors += 1


def saves(model: Any, file: str = "model.pt", *, fast: bool = False) -> str:
    """The wrapped function."""
    if file == "nowhere":
        raise OSError(file)
    return f"{model} in {file}"


def wrapped(recorder: Any, begin: Any, end: Any, **given: Any) -> Any:
    return around(recorder, saves, begin, end, **given)


def test_what_begin_returns_reaches_end_once() -> None:
    seen: list[Any] = []
    save = wrapped(Recorder(), lambda args, kwargs: (args, kwargs), seen.append)
    assert save("net", file="a") == "net in a" and seen == [(("net",), {"file": "a"})]
    with pytest.raises(OSError, match="nowhere") as caught:
        save("net", "nowhere")
    assert seen[1:] == [(("net", "nowhere"), {})]
    assert [entry.name for entry in caught.traceback][1:] == ["saves"], "without a frame of ours"
    save = wrapped(Recorder(), lambda args, kwargs: 1, seen.append, raised_too=False)
    with pytest.raises(OSError, match="nowhere"):
        save("net", "nowhere")
    assert len(seen) == 2


def test_wrong_arguments_are_answered_by_the_original() -> None:
    save = wrapped(Recorder(), lambda args, kwargs: args[0], lambda token: None)
    for arguments in ((), (1, 2, 3)):
        with pytest.raises(TypeError) as alone:
            saves(*arguments)
        with pytest.raises(TypeError) as watched:
            save(*arguments)
        assert str(watched.value) == str(alone.value)
    assert inspect.getfullargspec(save) == inspect.getfullargspec(saves)
    assert inspect.getsource(save) == inspect.getsource(saves)


def test_what_a_signal_raises_amid_our_code_shows_the_handler_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(args: Any, kwargs: Any) -> None:
        raise KeyboardInterrupt

    code = begin.__code__.replace(co_filename=quietly.__code__.co_filename)
    begin.__code__ = code
    save = wrapped(Recorder(), begin, lambda token: None)
    with pytest.raises(KeyboardInterrupt) as caught:
        save("net")
    assert [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)][1:] == []


def test_near_the_end_of_the_stack_nothing_of_ours_reaches_the_job() -> None:
    """At each depth that is left, the job's own call succeeds or is the one that is too deep."""
    recorder = Recorder()

    def needs(depth: int) -> int:
        return depth and needs(depth - 1)

    def watched(left: int) -> Any:
        if left:
            return watched(left - 1)
        return quietly(recorder, needs, 50)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    for spare in range(10, 60):
        assert watched(room - spare) in (0, None)
    assert recorder.errors == 0
    try:
        raise RecursionError
    except RecursionError:
        count_error(recorder)  # type: ignore[arg-type]
    assert recorder.errors == 0 and recorder.active
