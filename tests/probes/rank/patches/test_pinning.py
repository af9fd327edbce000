"""Time to pin batches, seen between the queues of the pinning thread or around one call in a fetch. Nothing stays behind."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
import types
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import pinning
from rn50_advisor.probes.rank.patches.pinning import Pinning, timed_loop
from step_loops import Loop

LOADER = 4


class Answer:
    """A worker's message at the start of an epoch."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(pinning, "perf_counter_ns", lambda: 1 + made.now)
    monkeypatch.setattr(pinning, "own_loader", lambda: LOADER)
    return made


def recorder(active: bool = True) -> Any:
    return types.SimpleNamespace(active=active, loading=types.SimpleNamespace(pinning=Pinning()), failed=pytest.fail)


def pin_all(loop: Loop) -> Any:
    """As torch's loop: a batch is taken, pinned and given on; here until there is none left."""

    def _pin_memory_loop(in_queue: Any, out_queue: Any, device: int) -> None:
        while True:
            number, batch = in_queue.get(timeout=0)
            loop.spend(batch)
            while True:
                try:
                    out_queue.put((number, batch), timeout=0)
                    break
                except queue.Full:
                    loop.spend(50)  # the loop has not come for the batch before
                    out_queue.get()

    return _pin_memory_loop


def run(loop: Loop, made: Any, items: list[Any], room: int = 0) -> queue.Queue[Any]:
    into: queue.Queue[Any] = queue.Queue()
    out: queue.Queue[Any] = queue.Queue(room)
    for item in items:
        into.put(item)
    with pytest.raises(queue.Empty):
        timed_loop(pin_all(loop), made)(into, out, 0)
    return out


def pin_spans(made: Pinning, loop: Loop) -> list[tuple[str, float]]:
    made.write_growth(loop.account)
    return [span for span in loop.paper.spans if span[0] == "pin"]


def test_a_batch_is_timed_from_when_it_is_taken_until_it_is_given_on(loop: Loop) -> None:
    made = recorder()
    out = run(loop, made, [(0, 3), (Answer(), 0), (1, 4)])
    assert [out.get()[1] for _ in range(3)] == [3, 0, 4], "all came through"
    assert made.loading.pinning._spent == {LOADER: (2, 7_000_000)}, "the answer is no batch"


def test_waiting_for_room_is_no_pinning(loop: Loop) -> None:
    made = recorder()
    run(loop, made, [(0, 3), (1, 4)], room=1)
    assert made.loading.pinning._spent == {LOADER: (2, 7_000_000)}


def test_each_clocked_step_tells_what_has_come_since_the_last_one(loop: Loop) -> None:
    made = recorder()
    assert pin_spans(made.loading.pinning, loop) == []
    run(loop, made, [(0, 3), (1, 4)])
    assert pin_spans(made.loading.pinning, loop) == [("pin", 7)]
    assert pin_spans(made.loading.pinning, loop) == [("pin", 7)], "once"
    run(loop, made, [(2, 5)])
    assert pin_spans(made.loading.pinning, loop) == [("pin", 7), ("pin", 5)]


def test_what_was_pinned_before_the_process_was_a_rank_is_told_later(loop: Loop) -> None:
    made = recorder()
    run(loop, made, [(0, 3)])
    ring, loop.account.ring = loop.account.ring, None
    made.loading.pinning.write_growth(loop.account)
    loop.account.ring = ring
    assert pin_spans(made.loading.pinning, loop) == [("pin", 3)]


def test_a_recorder_that_stands_still_leaves_the_queues_alone(loop: Loop) -> None:
    seen: list[Any] = []
    timed_loop(lambda *args: seen.extend(args), recorder(active=False))("in", "out", 0)
    assert seen == ["in", "out", 0]


def test_a_loop_of_another_shape_runs_as_it_is(loop: Loop) -> None:
    seen: list[Any] = []
    timed_loop(lambda **given: seen.append(given), recorder())(in_queue="in", out_queue="out")
    assert seen == [{"in_queue": "in", "out_queue": "out"}]


def test_the_queues_answer_whatever_else_they_are_asked(loop: Loop) -> None:
    sizes: list[int] = []
    timed_loop(lambda into, out: sizes.extend((into.qsize(), out.qsize())), recorder())(queue.Queue(), queue.Queue())
    assert sizes == [0, 0]


def test_what_ends_the_thread_shows_no_frame_of_ours(loop: Loop) -> None:
    with pytest.raises(queue.Empty) as ended:
        timed_loop(pin_all(loop), recorder())(queue.Queue(), queue.Queue(), 0)
    assert "rank/pinning" not in "".join(traceback.format_tb(ended.value.__traceback__))


@pytest.fixture
def module(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As torch's: of a list it pins each part by itself."""
    made = types.ModuleType("pins")
    exec(
        "def pin_memory(data, device=None):\n    return [pin_memory(x) for x in data] if data else spend()", vars(made)
    )
    vars(made)["spend"] = lambda: loop.spend(2)
    monkeypatch.setitem(sys.modules, pinning._MODULE, made)
    return made


def test_in_a_fetch_one_call_is_timed_with_all_that_it_calls(loop: Loop, module: Any) -> None:
    clock, original = Pinning(), module.pin_memory
    clock.watch(LOADER)
    assert module.pin_memory is not original and module.pin_memory.__name__ == "pin_memory"
    module.pin_memory([[], []])
    assert module.pin_memory is original, "gone with the first call"
    module.pin_memory([[]])
    clock.release()
    assert pin_spans(clock, loop) == [("pin", 4)]


def test_a_fetch_that_pins_nothing_leaves_all_as_it_was(loop: Loop, module: Any) -> None:
    clock, original = Pinning(), module.pin_memory
    clock.watch(LOADER)
    clock.release()
    assert module.pin_memory is original and pin_spans(clock, loop) == []


def test_another_threads_pinning_is_not_the_fetchs(loop: Loop, module: Any) -> None:
    clock = Pinning()
    clock.watch(LOADER)
    other = threading.Thread(target=module.pin_memory, args=([[]],))
    other.start()
    other.join()
    assert pin_spans(clock, loop) == []
    module.pin_memory([])
    assert pin_spans(clock, loop) == [("pin", 2)]


def test_a_torch_without_such_a_function_is_left_alone(loop: Loop, module: Any) -> None:
    del module.pin_memory
    clock = Pinning()
    clock.watch(LOADER)
    clock.release()
    assert not hasattr(module, "pin_memory")


def test_what_pinning_raises_passes_with_no_frame_of_ours(loop: Loop, module: Any) -> None:
    clock = Pinning()
    clock.watch(LOADER)
    with pytest.raises(TypeError) as ended:
        module.pin_memory(7)
    assert "rank/pinning" not in "".join(traceback.format_tb(ended.value.__traceback__))
