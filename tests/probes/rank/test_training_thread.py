"""Which thread trains: the first with a backward pass; hooks in autograd's threads count to it, and it is followed when it has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank import recorder as module
from rn50_advisor.probes.rank.layout import FLAG_NO_OPTIMIZER, STEP_FIELDS
from rn50_advisor.probes.rank.recorder import Recorder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(module.atexit, "register", lambda *_: None)
    made = Recorder(torch, str(tmp_path))
    yield made
    made.active = False


def in_a_thread(call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_of_threads_that_begin_their_first_backward_together_one_makes_the_ring(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    others: list[Any] = []

    class Ring(module.Ring):
        """Another thread begins its backward while this one is being made."""

        def __init__(self, path: str, **kwargs: Any) -> None:
            made.append(path)
            if len(made) == 1:
                others.append(in_a_thread(recorder.passes.backward_begin))
            super().__init__(path, **kwargs)

    monkeypatch.setattr(module, "Ring", Ring)
    account = recorder.passes.backward_begin()
    assert account is recorder.account and account.ring is not None
    assert len(made) == 1 and others == [None]
    assert recorder.several_threads_train and recorder.errors == 0


def test_a_handler_that_trains_amid_the_making_of_the_ring_waits_for_nothing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: list[Any] = []

    class Ring(module.Ring):
        def __init__(self, path: str, **kwargs: Any) -> None:
            inner.append(recorder.passes.backward_begin())
            super().__init__(path, **kwargs)

    monkeypatch.setattr(module, "Ring", Ring)
    assert recorder.passes.backward_begin() is recorder.account
    assert inner == [None] and recorder.errors == 0


def test_a_ring_that_cannot_be_made_leaves_the_place_to_the_next(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(module, "Ring", full)
        with pytest.raises(OSError, match="no space"):
            recorder.passes.backward_begin()
    account = in_a_thread(recorder.passes.backward_begin)
    assert account is not None and account.ring is not None


def test_a_thread_that_saves_or_fetches_first_is_not_taken_for_the_one_that_trains(recorder: Recorder) -> None:
    assert in_a_thread(recorder.save_begin) is None and recorder.account is None
    in_a_thread(recorder.own_account)
    account = recorder.passes.backward_begin()
    assert account is not None and account.thread == threading.get_ident()
    assert threading.get_ident() not in recorder.fetching_threads


def test_the_thread_that_trains_is_followed_when_it_has_ended(recorder: Recorder) -> None:
    def one_pass() -> Any:
        account = recorder.passes.backward_begin()
        assert account is not None
        recorder.passes.backward_end(account)
        return account

    first = in_a_thread(one_pass)
    delay = first.run_delay
    assert recorder.passes.backward_begin() is first, "one rank, one ring"
    assert first.thread == threading.get_ident() and first.run_delay is not delay
    assert not recorder.several_threads_train and recorder.facts.values["main_thread"] == threading.get_native_id()


def test_a_new_thread_by_the_number_of_the_one_that_ended_has_clocks_of_its_own(recorder: Recorder) -> None:
    account = in_a_thread(recorder.passes.backward_begin)
    delay = account.run_delay
    account.thread = threading.get_ident()  # as pthreads hand a number on
    assert recorder.own_account() is account
    assert account.run_delay is not delay and account.cpu_since <= account.cpu_clock()


def test_a_living_thread_keeps_its_place(recorder: Recorder) -> None:
    account = recorder.passes.backward_begin()
    assert account is not None
    assert in_a_thread(recorder.passes.backward_begin) is None
    assert account.thread == threading.get_ident() and recorder.several_threads_train


def test_an_update_in_another_thread_amid_the_backward_is_the_training_threads(recorder: Recorder) -> None:
    written: list[dict[str, int]] = []
    account: Any = recorder.passes.backward_begin()
    write = account.ring.write

    def keep(kind: int, flags: int, values: Any) -> None:
        if kind == 1:
            written.append({"flags": flags, **dict(zip(STEP_FIELDS, values, strict=True))})
        write(kind, flags, values)

    account.ring.write = keep

    def hook() -> None:
        recorder.passes.optimizer_begin(recorder)
        recorder.passes.optimizer_end(recorder)

    for _ in range(40):
        in_a_thread(hook)
        recorder.passes.backward_end(account)
        assert recorder.passes.backward_begin() is account
    assert not recorder.several_threads_train and recorder.errors == 0
    assert len(written) >= 35
    assert not any(step["flags"] & FLAG_NO_OPTIMIZER for step in written)
    assert all(0 < step["optimizer_ns"] < step["t_end_ns"] - step["t_start_ns"] for step in written[3:])


def test_an_update_beside_the_backward_is_that_of_a_thread_which_trains_too(recorder: Recorder) -> None:
    account: Any = recorder.passes.backward_begin()
    recorder.passes.backward_end(account)
    in_a_thread(lambda: recorder.passes.optimizer_begin(recorder))
    assert recorder.several_threads_train and account.optimizers == 0
