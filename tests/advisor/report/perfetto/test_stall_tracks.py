"""A stall on each stalled rank, with its line, its collective, and its latest calls."""

from __future__ import annotations

from typing import Any

from flight_entries import dump, entry
from recordings import FIRST_STEP_NS, MS, STARTED_NS, plan, recording, stall
from rn50_advisor.advisor.model.recording import Recording, happened
from rn50_advisor.advisor.report.perfetto.rank_tracks import add_ranks
from rn50_advisor.advisor.report.perfetto.stall_tracks import FLIGHT
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.probes.documents.event_documents import FlightDumps
from traced_runs import Event, events, named, of


def drawn(made: Recording) -> list[Event]:
    book = TraceBook(made.meta.started_ns)
    add_ranks(book, made, {})
    return named(events(book))


def test_a_stall_is_on_each_stalled_rank_with_its_line_and_collective() -> None:
    rows = [
        {"rank": 0, "phase": "backward", "collective": {"kind": "all_reduce", "begun": 7, "size": 2, "inside_s": 20.0}},
        {"rank": 1, "phase": "gap", "user": {"file": "train.py", "line": 12, "function": "main"}},
    ]
    made = recording({0: plan(8), 1: plan(8)}, events=(stall(20, *rows),))
    found = drawn(made)
    first, second = of(found, "stall")
    assert (first["process"], first["name"], first["dur"]) == ("rank 0 · node", "stalled in backward", 20e6)
    assert second["args"]["line"] == "train.py:12 in main"
    (call,) = (e for e in of(found, "collective") if e["thread"] == "stalls")
    assert (call["name"], call["args"]) == ("all_reduce", {"number": 7, "ranks": 2})


def test_calls_in_the_flight_recorder_are_there_when_they_were_made() -> None:
    """The clock of the dump is the wall's: the run began at 1,700,000,000 s of it."""

    def at(seconds: float, number: int, **given: Any) -> dict[str, Any]:
        return entry(number, time_created_ns=1_700_000_000_000_000_000 + round(seconds * 1e9), **given)

    stalled = dump(at(2.1, 1, state="completed"), at(2.2, 2, size=4096), at(-5, 0), at(1e6, 3))
    ended = dump(at(2.2, 2, size=4096, state="started"))[0]
    made = recording(
        {0: plan(30), 1: plan(30)},
        events=(
            stall(20, {"rank": 0, "flight": stalled}),
            happened(FlightDumps, {"ranks": {"0": ended}}, t_ns=FIRST_STEP_NS + 40_000 * MS),
        ),
    )
    found = [e for e in drawn(made) if e["thread"] == FLIGHT]
    assert {e["process"] for e in found} == {"rank 0 · node"}
    assert [(e["name"], e["ts"] / 1e6, e["args"]["state"]) for e in found] == [
        ("all_reduce 1", 2.1, "completed"),
        ("all_reduce 2", 2.2, "started"),
    ]
    assert found[1]["args"] | {"group": ""} == {
        "op": "all_reduce", "number": 2, "group": "", "state": "started", "elements": 4096, "sizes": [[4096]],
    }  # fmt: skip
    assert made.meta.started_ns == STARTED_NS
