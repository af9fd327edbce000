"""While a CUDA graph is captured, by whichever thread, the recorder calls no CUDA: on doubles of torch's graphs."""

from __future__ import annotations

import gc
import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.probes.rank.gpu.graph_captures import Captures, watch


class CUDAGraph:
    """As torch's, with what it was asked for."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.asked: list[Any] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.asked.append((pool, capture_error_mode))
        if self.fails == "begin":
            raise RuntimeError("no capture")

    def capture_end(self) -> None:
        self.asked.append("end")
        if self.fails == "end":
            raise RuntimeError("captured nothing")


@pytest.fixture
def captures() -> Captures:
    return Captures()


@pytest.fixture
def graph_class(captures: Captures) -> Any:
    kind = type("CUDAGraph", (CUDAGraph,), dict(vars(CUDAGraph)))
    failures: list[int] = []
    watch(SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=kind)), captures, lambda: failures.append(1))
    yield kind
    assert not failures


def test_during_a_capture_no_thread_of_the_recorder_calls_cuda(captures: Captures, graph_class: Any) -> None:
    asked: list[str] = []

    def dump() -> list[str]:
        asked.append("dump")
        return ["entries"]

    def in_a_thread() -> list[str]:
        found: list[list[str]] = []
        thread = threading.Thread(target=lambda: found.append(captures.outside(dump, [])))
        thread.start()
        thread.join()
        return found[0]

    graph = graph_class()
    assert in_a_thread() == ["entries"]
    graph.capture_begin((1, 2), capture_error_mode="thread_local")
    assert in_a_thread() == []
    graph.capture_end()
    assert in_a_thread() == ["entries"] and len(asked) == 2
    assert graph.asked == [((1, 2), "thread_local"), "end"]


def test_a_capture_that_starts_amid_a_dump_waits_until_it_is_done(captures: Captures, graph_class: Any) -> None:
    dumping, go_on, order = threading.Event(), threading.Event(), []

    def dump() -> list[str]:
        dumping.set()
        go_on.wait(30)
        order.append("dumped")
        return []

    graph = graph_class()
    graph.capture_begin = lambda: (type(graph).capture_begin(graph), order.append("captures"))
    dumper = threading.Thread(target=lambda: captures.outside(dump, []))
    dumper.start()
    dumping.wait(30)
    capturing = threading.Thread(target=graph.capture_begin)
    capturing.start()
    while not captures.under_way:
        pass
    go_on.set()
    capturing.join(30)
    dumper.join(30)
    assert order == ["dumped", "captures"]


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_a_failed_capture_is_over_and_its_error_shows_no_frame_of_the_recorder(
    captures: Captures, graph_class: Any, fails: str
) -> None:
    graph = graph_class(fails)
    with pytest.raises(RuntimeError) as raised:
        graph.capture_begin()
        graph.capture_end()
    assert not captures.under_way
    assert not any(
        "/src/rn50_advisor/probes/" in frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)
    )


def test_a_graph_that_is_deleted_amid_its_capture_blocks_nothing(captures: Captures, graph_class: Any) -> None:
    graph = graph_class()
    graph.capture_begin()
    assert captures.under_way
    del graph
    gc.collect()
    assert not captures.under_way


def test_the_callback_runs_before_a_capture_starts(captures: Captures, graph_class: Any) -> None:
    found = []
    captures.before = lambda: found.append(bool(captures.under_way))
    graph_class().capture_begin()
    assert found == [False]


def test_a_forked_child_knows_of_no_capture(captures: Captures, graph_class: Any) -> None:
    graph = graph_class()
    graph.capture_begin()
    captures.forget()
    assert captures.outside(lambda: True, False)
    graph.capture_end()


def test_torch_has_what_is_wrapped() -> None:
    torch = pytest.importorskip("torch")
    assert all(callable(vars(torch.cuda.CUDAGraph)[name]) for name in ("capture_begin", "capture_end"))
