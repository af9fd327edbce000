"""A rank's steps: phases in order inside each step, sums that hold, and a bound for long runs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from recordings import FIRST_STEP_NS, MS, SECOND, gpu_steps, lockstep, plan, spans, step, table, with_tail
from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.report.perfetto.step_tracks import TAIL, add_steps, add_stream_steps, bounded
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.probes.rank.layout import COMM_FIELDS, FLAG_EPOCH_START, FLAG_NO_LOADER
from traced_runs import Event, events, of


def rows_of(*steps: dict[str, float]) -> Table:
    return lockstep({0: list(steps)})[0][0]


def drawn(rows: Table, **given: object) -> tuple[list[Event], list[Event]]:
    """(steps, phases), times in milliseconds since the first step."""
    book = TraceBook(FIRST_STEP_NS)
    track = book.thread(book.process("rank 0"), "loop")
    options = {"comm": {}, "spans": None, "first_seen_ns": None, **given}
    add_steps(book, track, rows, **options)  # type: ignore[arg-type]
    found = [{**e, "ts": e["ts"] / 1000, "dur": e["dur"] / 1000} for e in events(book) if e["ph"] == "X"]
    return [e for e in found if e["cat"] != "phase"], of(found, "phase")


def places(phases: list[Event]) -> list[tuple[str, float, float]]:
    return [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in phases]


def test_a_step_holds_its_phases_in_order() -> None:
    (one,), phases = drawn(rows_of(step(clip=2, gap=8)))
    assert (one["name"], one["ts"], one["dur"]) == ("step 0", 0, 110)
    assert one["args"]["samples"] == 8
    assert one["args"]["samples per second"] == pytest.approx(8 / 0.110, rel=1e-4)
    assert places(phases) == [
        ("waiting for input", 0, 10),
        ("forward", 10, 40),
        ("backward", 40, 90),
        ("before the update", 90, 92),
        ("optimizer", 92, 102),
        ("between steps", 102, 110),
    ]


def test_an_evaluation_lies_where_it_was() -> None:
    _, phases = drawn(rows_of(step(gap=20, evaluation=300)), spans=spans([("evaluation", 0, 0.105, 0.405)]))
    assert places(phases)[-3:] == [
        ("between steps", 100, 105),
        ("evaluation", 105, 405),
        ("between steps", 405, 420),
    ]


def test_an_evaluation_of_unknown_place_comes_last() -> None:
    _, phases = drawn(rows_of(step(gap=20, evaluation=300)))
    assert places(phases)[-2:] == [("between steps", 100, 120), ("evaluation", 120, 420)]


def test_without_a_loader_fetch_and_forward_are_one() -> None:
    _, phases = drawn(rows_of(step(flags=FLAG_NO_LOADER)))
    assert "input or forward" in {e["name"] for e in phases}


def test_the_exchange_that_backward_does_not_hide_ends_it() -> None:
    stamps = table((*COMM_FIELDS, "flags"), [{"step": 0, "comm_ns": 30 * MS, "overlap_ns": 18 * MS}])
    _, phases = drawn(rows_of(step()), comm={0: stamps[0]})
    assert ("backward", 40, 78) in places(phases) and ("communication (exposed)", 78, 90) in places(phases)


def test_the_time_before_the_first_step_and_after_the_last_is_shown() -> None:
    rows = with_tail(rows_of(step(), step(flags=FLAG_EPOCH_START)), gap=50)
    steps, _ = drawn(rows, first_seen_ns=FIRST_STEP_NS)
    assert [e["name"] for e in steps] == ["step 0", "step 1", TAIL]
    assert [e["cat"] for e in steps] == ["step", "step", "after"]
    assert steps[1]["args"]["first of an epoch"] is True
    book = TraceBook(FIRST_STEP_NS - SECOND)
    track = book.thread(1, "loop")
    found = add_steps(book, track, rows, comm={}, spans=None, first_seen_ns=FIRST_STEP_NS - SECOND)
    assert found.steps == 2
    (start,) = (e for e in events(book) if e["name"] == "starting up")
    assert (start["ts"], start["dur"]) == (0, 1e6)


def test_rows_of_a_damaged_file_never_overlap() -> None:
    rows = rows_of(step(), step(), step())
    rows["t_start_ns"][1] -= 50 * MS
    rows["t_end_ns"][2] = rows["t_start_ns"][2] - 1
    rows["backward_ns"][0] = 10**15
    steps, phases = drawn(rows)
    ends = 0.0
    for one in steps:
        assert one["ts"] >= ends
        ends = one["ts"] + one["dur"]
    for part in phases:
        assert any(s["ts"] <= part["ts"] and part["ts"] + part["dur"] <= s["ts"] + s["dur"] + 1e-9 for s in steps)


def test_a_long_run_is_bounded_and_keeps_the_sums() -> None:
    rows = rows_of(*plan(5_000))
    kept, folded = bounded(rows, 400)
    assert len(kept) <= 420
    assert folded > 4_000
    assert kept["count"].sum() == 5_000
    assert (kept["count"][-200:] == 1).all()
    for column in ("input_wait_ns", "backward_ns", "samples"):
        assert kept[column].sum() == rows[column].sum()
    steps, phases = drawn(kept)
    total: Counter[str] = Counter()
    for part in phases:
        total[part["name"]] += part["dur"]
    assert total["backward"] == pytest.approx(5_000 * 50)
    assert steps[0]["name"].startswith("steps 0–")


def test_a_short_run_stays_as_it_is() -> None:
    rows = rows_of(*plan(50))
    kept, folded = bounded(rows, 50)
    assert folded == 0 and np.array_equal(kept, rows)


def test_the_streams_steps_follow_each_other_and_never_precede_the_hosts() -> None:
    """Events give lengths: a stream that is behind its host begins a step when the one before has ended."""
    starts = {0: FIRST_STEP_NS, 1: FIRST_STEP_NS + 10 * MS, 3: FIRST_STEP_NS + 500 * MS}
    gpu = gpu_steps(
        [{"step": n, "forward": 30, "backward": 50, "optimizer": 10, "input_wait": 5, "gap": 2} for n in (0, 1, 2, 3)]
    )
    book = TraceBook(FIRST_STEP_NS - SECOND)
    placed = add_stream_steps(book, book.thread(1, "stream"), gpu, starts, {})
    found = [(e["name"], e["ts"] / 1000 - 1000, e["dur"] / 1000) for e in of(events(book), "gpu step")]
    assert found == [
        ("step 0 on the GPU", pytest.approx(-2), pytest.approx(97)),
        ("step 1 on the GPU", pytest.approx(95), pytest.approx(97)),
        ("step 3 on the GPU", pytest.approx(498), pytest.approx(97)),
    ]
    assert placed[0] == (FIRST_STEP_NS + 35 * MS, FIRST_STEP_NS + 85 * MS)
