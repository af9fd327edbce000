"""Loaders are known by identity; epochs of persistent workers begin and workers end outside of fetches, in whatever phase the loop is."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import loader_patches, wrappers
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, FORWARD, GAP, INPUT
from step_loops import MS, TRAIN, Loop

torch = types.SimpleNamespace(is_grad_enabled=lambda: True)


def made(recorder: Recorder, loop: Loop, *, fails: bool = False) -> Any:
    """A class such as torch's iterator over workers, patched; its epochs begin in 20 ms, its workers end in 30."""

    class Iterator:
        _rn50_loader = TRAIN
        _shutdown = False

        def __init__(self) -> None:
            self._reset("loader", first_iter=True)

        def _reset(self, loader: str, first_iter: bool = False) -> None:
            loop.spend(20)

        def _shutdown_workers(self) -> None:
            loop.spend(30)
            self._shutdown = True
            if fails:
                raise OSError

    loader_patches.mark_workers(recorder, types.SimpleNamespace(_MultiProcessingDataLoaderIter=Iterator))
    return Iterator


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(loader_patches, "perf_counter_ns", lambda: made.now)
    return made


@pytest.fixture
def recorder(tmp_path: Path, loop: Loop) -> Recorder:
    recorder = Recorder(torch, str(tmp_path))
    own: Any = recorder.own_account()
    loop.account.thread = own.thread
    recorder.account = loop.account
    loop.step()
    return recorder


def waited(loop: Loop) -> float:
    return loop.account.wall[INPUT] / MS


def test_an_epoch_of_workers_that_live_on_begins_in_its_first_steps_wait(recorder: Recorder, loop: Loop) -> None:
    iterator = made(recorder, loop)()
    assert loop.account.step == 0, "making an iterator tells of itself"
    iterator._reset("loader")
    assert loop.account.step == 1 and waited(loop) == 20


def test_workers_that_end_are_waited_for_as_for_input_and_the_loop_goes_on_where_it_was(
    recorder: Recorder, loop: Loop
) -> None:
    iterator = made(recorder, loop)()
    iterator._shutdown_workers()
    assert loop.account.phase == GAP and waited(loop) == 30
    iterator._shutdown_workers()
    assert waited(loop) == 30, "they are gone already"


def test_workers_whose_end_fails_leave_a_sound_account(recorder: Recorder, loop: Loop) -> None:
    with pytest.raises(OSError):
        made(recorder, loop, fails=True)()._shutdown_workers()
    assert loop.account.phase == GAP and recorder.errors == 0


@pytest.mark.parametrize("amid", ["a fetch", "a backward", "a collection", "a flush of the buffer", "another thread"])
def test_what_else_is_under_way_stays_what_it_is(recorder: Recorder, loop: Loop, amid: str) -> None:
    loop.account.phase = {"a fetch": INPUT, "a backward": BACKWARD}.get(amid, FORWARD)
    if amid == "a collection":
        recorder.garbage.events.append((1, 1, True))
    loop.account.replaying = amid == "a flush of the buffer"
    if amid == "another thread":
        loop.account.thread += 1
    assert recorder.loading.workers_end(made(recorder, loop)()) is None


def test_a_process_that_has_not_trained_gets_no_account_by_letting_go_of_its_workers(
    recorder: Recorder, loop: Loop
) -> None:
    recorder.forget()
    made(recorder, loop)()._shutdown_workers()
    assert recorder.account is None


def test_workers_end_when_the_interpreter_has_cleared_what_watches_them(
    recorder: Recorder, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterator = made(recorder, loop)()
    monkeypatch.setattr(wrappers, "quietly", None)
    iterator._shutdown_workers()
    assert iterator._shutdown


class Awkward:
    """A loader of the job's that compares by its contents, and so has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_a_loader_that_cannot_be_hashed_is_known_by_what_it_is(recorder: Recorder) -> None:
    class Iteration:
        def __init__(self, loader: Any) -> None:
            self.loader = loader

    loader_patches.iterator_init(recorder, Iteration)
    first, second = Awkward(), Awkward()
    recorder.loading.loaders.numbers.put(first, 3)
    assert [Iteration(loader)._rn50_loader for loader in (first, second)] == [3, -1]  # type: ignore[attr-defined]
    del first
    assert not recorder.loading.loaders.numbers._known and recorder.errors == 0
