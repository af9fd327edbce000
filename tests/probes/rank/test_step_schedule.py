"""Marks are buffered only where nothing of the step is due, and something will find the buffer full."""

from __future__ import annotations

import os
import threading
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.steps.mark_buffer import (
    SHORT_STRETCHES_MAX,
    MarkBuffer,
)
from stub_training import Training


@pytest.mark.parametrize("clocked", [True, False])
def test_a_clocked_step_has_its_fetch_timed_where_a_flush_began_it(tmp_path, monkeypatch, clocked) -> None:
    torch = pytest.importorskip("torch")
    from rn50_advisor.probes.rank.recorder import Recorder

    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    recorder = Recorder(torch, str(tmp_path))
    account = recorder.own_account()
    account.ring = SimpleNamespace(phase=lambda *_: None, write=lambda *_: None, cost=lambda *_: None)
    account.clocked, account.begin_step = clocked, lambda: True
    loader = torch.utils.data.DataLoader([1, 2])
    iterator = iter(loader)
    recorder.schedule.flush_buffer(iterator)
    assert ("fetch" in vars(iterator._dataset_fetcher)) == clocked


@pytest.mark.parametrize(("wasted", "counts"), [(SHORT_STRETCHES_MAX - 1, True), (SHORT_STRETCHES_MAX, False)])
def test_a_loop_that_calls_what_must_be_marked_in_each_step_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wasted: int, counts: bool
) -> None:
    recorder = Training(tmp_path).recorder
    recorder.buffer.usual.offsets, recorder.buffer.short_stretches = [0, 1, 2, 3, 4], wasted
    account = types.SimpleNamespace(last_loader=-1)
    monkeypatch.setattr("rn50_advisor.probes.rank.step_schedule.may_be_counted", lambda account: True)
    assert recorder.schedule._may_be_counted(account, 0) is counts


def in_another_thread(call: object, *args: object) -> None:
    thread = threading.Thread(target=call, args=args)  # type: ignore[arg-type]
    thread.start()
    thread.join()


@pytest.mark.parametrize("mark", ["backward", "optimizer"])
def test_where_another_thread_trains_too_nothing_is_buffered(tmp_path: Path, mark: str) -> None:
    training = Training(tmp_path)
    assert training.buffered()
    if mark == "backward":
        in_another_thread(training.recorder.passes.backward_begin)
    else:
        in_another_thread(training.recorder.passes.optimizer_begin, object())
    assert not training.buffered()


def test_another_thread_that_fetches_is_nothing_to_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    in_another_thread(training.recorder.loading.fetch_begin, types.SimpleNamespace(_num_yielded=3))
    assert training.buffered()


def test_where_no_mark_would_find_the_buffer_full_nothing_is_buffered(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.account.optimizers, training.account.last_loader = 0, -1
    assert not training.buffered()
    training.account.last_loader = 0
    assert training.buffered()


@pytest.mark.parametrize(("switches_in", "buffered"), [(0, False), (1, True), (1 << 40, True)])
def test_buffered_steps_end_where_a_trial_switches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switches_in: int, buffered: bool
) -> None:
    training = Training(tmp_path)
    training.recorder.trial = SimpleNamespace(next_step=training.account.step + switches_in)  # type: ignore[assignment]
    asked: list[int] = []
    start = MarkBuffer.start

    def note_steps(buffer: MarkBuffer, account: Any, steps: int, *more: Any, **options: Any) -> None:
        asked.append(steps)
        start(buffer, account, steps, *more, **options)

    monkeypatch.setattr(MarkBuffer, "start", note_steps)
    assert training.buffered() is buffered
    assert asked == [] or 1 <= asked[0] <= switches_in


def test_a_trial_is_asked_at_the_start_of_its_step_and_not_before(tmp_path: Path) -> None:
    recorder = Training(tmp_path).recorder
    called: list[int] = []
    recorder.trial = SimpleNamespace(next_step=5, at_step=lambda account: called.append(account.step), facts=dict)  # type: ignore[assignment]
    recorder.syncs.due, recorder.schedule.refresh_at = 1 << 62, 1 << 62
    recorder.account = SimpleNamespace(step=0, replaying=False)
    for recorder.account.step in range(7):
        if recorder.account.step >= recorder.schedule.due_at:
            recorder.schedule._due()
    assert called == [5, 6]
