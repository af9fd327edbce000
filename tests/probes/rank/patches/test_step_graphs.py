"""Replays of CUDA graphs: one that contains a backward pass or an update is one, graphs of parts of a pass are not."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches.step_graphs import mark_replays


class CUDAGraph:
    """As torch's; what runs between begin and end is what it contains."""

    def __init__(self) -> None:
        self.replays = 0
        self.fails = False

    def capture_begin(self, pool: Any = None) -> None:
        pass

    def capture_end(self) -> None:
        if self.fails:
            raise RuntimeError("captured nothing")

    def replay(self) -> None:
        self.replays += 1
        if self.fails:
            raise RuntimeError("illegal address")


class Optimizer:
    pass


class Job:
    """A recorder that writes down its marks, and the deeds of a loop."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.account = SimpleNamespace(ring=object(), backwards=0, optimizers=0)
        self.errors: list[Exception] = []
        self.own: Any = self.account
        self.recorder = SimpleNamespace(
            active=True,
            facts=SimpleNamespace(values={}),
            own_account=lambda: self.own,
            passes=SimpleNamespace(
                captured_update=None,
                backward_begin=lambda: self.marks.append("backward") or self.account,  # type: ignore[func-returns-value]
                backward_end=lambda account: self.marks.append("end"),
                optimizer_begin=lambda optimizer: self.marks.append("update"),
                optimizer_end=lambda optimizer: self.marks.append("end"),
            ),
            failed=lambda: self.errors.append(Exception()),
        )
        kind = type("CUDAGraph", (CUDAGraph,), dict(vars(CUDAGraph)))
        mark_replays(SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=kind)), self.recorder)  # type: ignore[arg-type]
        self.graph: Any = kind()
        self.optimizer = Optimizer()

    def captured(self, *, backward: bool = True, update: bool = True) -> Any:
        self.graph.capture_begin(pool=1)
        self.account.backwards += backward
        if update:
            self.account.optimizers += 1
            self.recorder.passes.captured_update = weakref.ref(self.optimizer)
        self.graph.capture_end()
        return self.graph


@pytest.fixture
def job() -> Any:
    made = Job()
    yield made
    assert not made.errors


@pytest.mark.parametrize(
    ("contains", "marks"),
    [
        ({}, ["backward", "end", "update", "end"]),
        ({"update": False}, ["backward", "end"]),
        ({"backward": False}, ["update", "end"]),
        ({"backward": False, "update": False}, []),
    ],
)
def test_a_replay_is_marked_as_what_the_graph_contains(job: Job, contains: dict[str, bool], marks: list[str]) -> None:
    graph = job.captured(**contains)
    assert job.marks == [], "what is captured has its own marks"
    graph.replay()
    graph.replay()
    assert graph.replays == 2 and job.marks == 2 * marks
    assert bool(job.recorder.facts.values) is ("backward" in marks)


def test_a_graph_that_was_captured_unseen_is_left_alone(job: Job) -> None:
    job.own = None
    job.captured().replay()
    assert job.graph.replays == 1 and job.marks == []


def test_another_threads_replay_is_left_alone(job: Job) -> None:
    graph = job.captured()
    job.own = None
    graph.replay()
    assert graph.replays == 1 and job.marks == []


def test_after_the_recorder_has_stopped_only_the_graph_runs(job: Job) -> None:
    graph = job.captured()
    job.recorder.active = False
    graph.replay()
    assert graph.replays == 1 and job.marks == []


def test_errors_of_the_job_pass_and_end_their_marks(job: Job) -> None:
    graph = job.captured()
    graph.fails = True
    with pytest.raises(RuntimeError, match="illegal address"):
        graph.replay()
    assert job.marks == ["backward", "end", "update", "end"]
    with pytest.raises(RuntimeError, match="captured nothing"):
        job.captured()
    graph.fails = False
    graph.replay()
    assert job.marks == ["backward", "end", "update", "end"], "what it contains now is not known"


def test_neither_graphs_nor_optimizers_are_kept_alive(job: Job) -> None:
    graph = job.captured()
    job.optimizer = Optimizer()
    gc.collect()
    graph.replay()
    assert job.marks == ["backward", "end"]
    gone = weakref.ref(graph)
    job.graph = graph = None
    gc.collect()
    assert gone() is None
