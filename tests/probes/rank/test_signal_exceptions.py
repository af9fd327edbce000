"""Exceptions of the recorder are counted and go no further; those of the job's signal handlers reach the job."""

from __future__ import annotations

import functools
import os
import signal
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import wrappers
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.workers.worker_batches import InProcess

pytest.importorskip("torch")  # imported in each process that the recorder is in


torch = types.SimpleNamespace(is_grad_enabled=lambda: True)


class TimeIsUpError(Exception):
    """An exception of the job's."""


def handler(number: int, frame: Any) -> None:
    raise TimeIsUpError


def once(number: int, frame: Any) -> None:
    """As of a time limit: it is no handler any more when it raises."""
    signal.signal(number, signal.SIG_IGN)
    raise TimeIsUpError


def once_of_any_arguments(*arguments: Any) -> None:
    once(*arguments)


class Handlers:
    def method(self, number: int, frame: Any) -> None:
        raise TimeIsUpError

    def __call__(self, number: int, frame: Any) -> None:
        raise TimeIsUpError


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(torch, str(tmp_path))


@pytest.fixture
def interrupted() -> Iterator[Callable[[], None]]:
    """Code of ours amid which a signal comes."""

    def work() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.getsignal(signal.SIGUSR1)
    yield work
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "handles",
    [handler, Handlers().method, Handlers(), functools.partial(handler), once, once_of_any_arguments],
    ids=["function", "method", "object", "partial", "taken out", "of any arguments"],
)
def test_what_a_signal_handler_raises_amid_our_code_reaches_the_job(
    recorder: Recorder, interrupted: Callable[[], None], handles: Any
) -> None:
    signal.signal(signal.SIGUSR1, handles)
    with pytest.raises(TimeIsUpError):
        wrappers.quietly(recorder, interrupted)
    assert recorder.errors == 0


def test_it_reaches_the_job_out_of_a_worker_too(
    recorder: Recorder, interrupted: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGUSR1, handler)
    account: Any = recorder.own_account()
    clock = InProcess(account, recorder.folder, recorder.failed)
    monkeypatch.setattr(clock, "begin", interrupted)
    fetcher: Any = type("Fetcher", (), {"dataset": (), "fetch": lambda self, index: index})()
    clock.watch(fetcher)
    with pytest.raises(TimeIsUpError):
        fetcher.fetch([1])


def test_a_fault_of_ours_passes_nobody_though_the_job_handles_signals(
    recorder: Recorder, interrupted: Callable[[], None]
) -> None:
    signal.signal(signal.SIGUSR1, handler)
    assert wrappers.quietly(recorder, lambda: 1 // 0) is None
    assert recorder.errors == 1
