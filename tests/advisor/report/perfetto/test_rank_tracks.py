"""A process for each rank, with its workers, collectives and stalls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import FIRST_STEP_NS, MS, batches, plan, rank_process, recording, spans
from rn50_advisor.advisor.report.perfetto import rank_tracks
from rn50_advisor.advisor.report.perfetto.rank_tracks import add_ranks
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from traced_runs import STEPS, Event, events, named, of, two_busy_ranks


def drawn(made, **kernels) -> tuple[list[Event], TraceBook]:
    book = TraceBook(made.meta.started_ns, (p.pid for p in made.processes))
    add_ranks(book, made, kernels)
    return named(events(book)), book


def test_each_rank_is_a_process_with_its_own_number_in_order() -> None:
    made = recording({rank: plan(3) for rank in (10, 2, 0)})
    book = TraceBook(0)
    found = add_ranks(book, made, {})
    assert found.pids == {0: 100, 2: 102, 10: 110}
    names = [e["args"]["name"] for e in events(book) if e["name"] == "process_name"]
    assert names == ["rank 0 · node", "rank 2 · node", "rank 10 · node"]


def test_ranks_without_a_process_are_shown_too() -> None:
    made = replace(recording({0: plan(3), 1: plan(3)}), processes=(rank_process(0),))
    found, _ = drawn(made)
    assert len({e["pid"] for e in of(found, "step")}) == 2


def test_workers_are_threads_of_their_rank() -> None:
    rows = [
        {"start": 0.1 * n, "wall": 150, "cpu": 90, "worker": n % 2, "pid": 200 + n % 2, "number": n, "blocks": 2000}
        for n in range(6)
    ]
    made = recording({0: plan(8)}, batches={0: batches(rows)})
    found, _ = drawn(made)
    made_batches = of(found, "worker")
    assert {(e["process"], e["thread"], e["tid"]) for e in made_batches} == {
        ("rank 0 · node", "worker 0", 200),
        ("rank 0 · node", "worker 1", 201),
    }
    assert made_batches[0]["args"] == {
        "batch of this worker": 0,
        "samples": 8,
        "CPU time, ms": 90,
        "read, MB": 1.024,
        "process": 200,
    }


def test_a_workers_overlapping_batches_take_a_second_thread() -> None:
    rows = [{"start": 0.1 * n, "wall": 250, "worker": 0, "pid": 200 + n} for n in range(3)]
    found, _ = drawn(recording({0: plan(8)}, batches={0: batches(rows)}))
    assert sorted(e["thread"] for e in of(found, "worker")) == ["worker 0", "worker 0 (2)", "worker 0 (3)"]


def test_collectives_have_op_and_bytes() -> None:
    made = two_busy_ranks()
    facts = {
        100: {
            "collectives": [{"kind": "all_reduce"}],
            "ddp": [{"total_parameter_size_bytes": 102_000, "world_size": 2}],
        }
    }
    found, _ = drawn(replace(made, facts=facts))
    own = [e for e in of(found, "collective") if e["thread"] == "collectives called by the job"]
    assert len(own) == 2 * STEPS
    assert {e["name"] for e in own} == {"all_reduce"}
    assert own[0]["args"] | {"place": ""} == {
        "op": "all_reduce", "step": 0, "calls": 2, "bytes": 4096, "ranks in the group": 2, "place": "",
    }  # fmt: skip
    steps = {e["args"]["step"]: e for e in of(found, "step") if e["pid"] == 100}
    for one in own:
        step = steps[one["args"]["step"]]
        assert step["ts"] <= one["ts"] and one["ts"] + one["dur"] <= step["ts"] + step["dur"]
    gradients = [e for e in of(found, "collective") if e["name"] == "all_reduce of gradients" and e["pid"] == 100]
    assert len(gradients) == STEPS
    assert gradients[0]["args"]["bytes"] == 102_000
    assert gradients[0]["dur"] == pytest.approx(3_000)


def test_spans_of_the_loop_are_beside_it_and_a_growing_one_is_shown_once() -> None:
    rows = spans(
        [("unseen", 0, 0.0, 0.1), ("gc", 1, 0.12, 0.13), ("unseen", 0, 0.0, 0.4), ("evaluation", 1, 0.5, 0.6)],
        (5, 1, 20, 1),
    )
    found, _ = drawn(recording({0: plan(8)}, spans={0: rows}))
    assert {(e["name"], round(e["dur"] / 1e3), e["args"].get("count")) for e in of(found, "loop")} == {
        ("batches without a backward pass", 400, 20),
        ("garbage collection", 10, None),
    }


def test_the_trace_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_tracks, "STEP_ROWS_MAX", 100)
    monkeypatch.setattr(rank_tracks, "BATCHES_MAX", 50)
    rows = [{"start": 0.01 * n, "wall": 5, "pid": 200} for n in range(300)]
    made = recording({0: plan(2_000)}, batches={0: batches(rows)})
    found, book = drawn(made)
    assert len(of(found, "step")) < 150
    assert len(of(found, "worker")) == 50
    assert min(e["ts"] for e in of(found, "worker")) > (FIRST_STEP_NS - made.meta.started_ns + 2_400 * MS) / 1000
    assert [words.split(":")[1].split()[0] for words in book.left_out] == ["1,950", "the"]
    assert "share slices" in book.left_out[0] and "250 of 300 batches" in book.left_out[1]
