"""What drawing the indices of a batch takes: timed for one fetch, told where it is long, and gone from the iterator afterwards."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.rank.workers import worker_batches
from rn50_advisor.probes.rank.workers.worker_batches import LEAST_NS, Drawing
from step_loops import MS, TRAIN, Loop


class Iterator:
    """As torch's: asks its sampler for the indices of a batch."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.left = loop, 3

    def _next_index(self) -> list[int]:
        self.loop.now += self.took_ns
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return [self.left]

    took_ns = 2 * MS


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(worker_batches, "perf_counter_ns", lambda: 1 + made.now)
    return made


@pytest.mark.parametrize(("took_ns", "told"), [(LEAST_NS, [0.1]), (LEAST_NS - 1, [])])
def test_a_fetch_tells_what_was_drawn_in_it_and_a_quick_sampler_tells_nothing(
    loop: Loop, took_ns: int, told: list[float]
) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    iterator.took_ns = took_ns
    before = dict(vars(iterator))
    clock.watch(iterator)
    clock.watch(Iterator(loop))  # of a data set that iterates over a loader of its own
    assert iterator._next_index() == [2]
    clock.release(loop.account, TRAIN)
    clock.release(loop.account, TRAIN)
    assert vars(iterator) == {**before, "left": 2}, "it is as it was"
    assert [row for row in loop.paper.spans if row[0] == "index"] == [("index", ms) for ms in told]


def test_all_that_is_drawn_in_one_fetch_counts(loop: Loop) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    clock.watch(iterator)
    iterator._next_index()
    loop.spend(7)
    iterator._next_index()
    clock.release(loop.account, TRAIN)
    assert loop.paper.spans == [("index", 4)]


def test_the_end_of_a_sampler_passes_through_with_no_frame_of_ours(loop: Loop) -> None:
    clock, iterator = Drawing(), Iterator(loop)
    iterator.left = 0
    clock.watch(iterator)
    with pytest.raises(StopIteration) as ended:
        iterator._next_index()
    assert all("rank/drawing" not in str(entry.path) for entry in ended.traceback)


def test_an_iterator_without_that_method_or_with_one_of_the_jobs_is_left_alone(loop: Loop) -> None:
    clock, own = Drawing(), Iterator(loop)
    clock.watch(object())
    draw = own._next_index
    own._next_index = draw  # type: ignore[method-assign]
    clock.watch(own)
    assert vars(own)["_next_index"] is draw
