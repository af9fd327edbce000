"""A deep window lies in the run's time, its kernels by stream and its operators by thread."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kernel_traces import plain, two_steps, window
from recordings import FIRST_STEP_NS, MS, lockstep, plan, recording
from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.model.recording import Recording, happened
from rn50_advisor.advisor.report.perfetto import kernel_tracks
from rn50_advisor.advisor.report.perfetto.kernel_tracks import DeepTrace, add_window, clock_ahead_ns
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.probes.documents.event_documents import TracedWindow
from traced_runs import Event, events, named, of, traced
from traces import ALL_REDUCE

FIRST = 12  # step of the window's first mark
START_NS = FIRST_STEP_NS + FIRST * 100 * MS
NAME = "deep-rank0.json.gz"


def test_marks_and_steps_are_the_same_moments() -> None:
    rows = lockstep({0: plan(20)})[0][0]
    marks = [1_000.0 + 300_000, 101_000.0, 201_000.0]  # the profiler took 300 ms to start
    assert clock_ahead_ns(marks, FIRST, rows) == START_NS - 1_000 * 1000
    assert clock_ahead_ns(marks[:1], FIRST, rows) == START_NS - 301_000 * 1000
    assert clock_ahead_ns(marks, 100, rows) is None
    assert clock_ahead_ns(marks, FIRST, None) is None


def drawn(book_of_events, **given: int) -> tuple[list[Event], TraceBook]:
    book = TraceBook(START_NS)
    trace = read_trace(book_of_events.document())
    rows = lockstep({0: plan(20)})[0][0]
    rows["t_start_ns"][FIRST + 1 : FIRST + 3] = [START_NS + 10 * MS, START_NS + 20 * MS]
    add_window(book, 100, DeepTrace(trace, given.get("first", FIRST)), rows, 0)
    return named(events(book)), book


def test_kernels_lie_where_they_ran() -> None:
    found, _ = drawn(two_steps(plain))
    kernels = of(found, "kernel")
    assert {e["thread"] for e in kernels} == {"deep window: GPU 0, stream 7"}
    # the first mark is 500 us before the first kernel, and the second step's is at its start
    assert [round(e["ts"]) for e in kernels[:4]] == [500, 4_500, 6_500, 7_500]
    assert kernels[0]["args"]["class"] == "convolutions"
    assert kernels[0]["args"]["operator"] == "aten::convolution"
    assert kernels[0]["args"]["kernel"].startswith("sm80_xmma")
    operators = of(found, "operator")
    assert {e["thread"] for e in operators} == {"deep window: host thread 4711"}
    assert "rn50-advisor step" not in {e["name"] for e in operators}


def test_kernels_at_the_same_time_take_several_threads_and_collectives_have_bytes() -> None:
    def fill(book, begin: float) -> None:
        plain(book, begin)
        book.kernel(ALL_REDUCE, begin + 100, 9_000)
        args = {"Collective name": "allreduce", "In msg nelems": 25_557_032, "dtype": "BFloat16", "Group size": 8}
        book.events[-1]["args"] |= args

    found, _ = drawn(two_steps(fill))
    exchange = [e for e in of(found, "kernel") if "AllReduce" in e["name"]]
    assert exchange[0]["args"] | {"kernel": ""} == {
        "kernel": "", "class": "collectives", "op": "allreduce", "elements": 25_557_032, "type": "BFloat16", "ranks": 8,
    }  # fmt: skip
    places = {}
    for e in sorted(of(found, "kernel"), key=lambda e: e["ts"]):
        assert places.get(e["tid"], 0) <= e["ts"] + 1e-6
        places[e["tid"]] = e["ts"] + e["dur"]


def test_a_huge_window_is_cut_off_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_tracks, "EVENTS_MAX", 5)
    found, book = drawn(two_steps(plain))
    assert len(of(found, "kernel")) + len(of(found, "operator")) <= 5
    assert "at the end of its deep window" in book.left_out[0]


def test_a_window_whose_steps_are_gone_is_left_out() -> None:
    found, book = drawn(two_steps(plain), first=500)
    assert not found
    assert "none of its steps" in book.left_out[0]


def with_window(trace: str = NAME) -> Recording:
    made = replace(window(two_steps(plain)), trace=trace)
    event = happened(TracedWindow, asdict(made), t_ns=FIRST_STEP_NS, pid=100, rank=0)  # type: ignore[arg-type]
    return recording({0: plan(20)}, events=(event,))


def test_the_runs_folder_has_the_kernels(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps(two_steps(plain).document()))
    assert len(of(traced(with_window(), folder=tmp_path), "kernel")) == 8


@pytest.mark.parametrize("trace", [NAME, "../x/deep-rank0.json.gz", "secret.json", ""])
def test_no_other_file_is_read(tmp_path: Path, trace: str) -> None:
    """A name in a stranger's run may lead anywhere, and a file of that name may be a link."""
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "x" / NAME, folder / "secret.json"):
        path.write_text(json.dumps(two_steps(plain).document()))
    (folder / NAME).symlink_to(tmp_path / "x" / NAME)
    found = traced(with_window(trace), folder=folder)
    assert not of(found, "kernel")
    assert "kernels of its deep window" in json.dumps(of(found, "left out"))


def test_a_damaged_trace_costs_only_its_kernels(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\x1f\x8bnothing")
    found = traced(with_window(), folder=tmp_path)
    assert of(found, "step") and not of(found, "kernel")
    assert "kernels of its deep window" in json.dumps(of(found, "left out"))
