"""Traces of ranks as one recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.advisor.traces.trace_json import read_trace_file
from rn50_advisor.advisor.traces.trace_recording import recording_of
from rn50_advisor.advisor.traces.traced_rank import TracedRank, traced_rank
from rn50_advisor.probes.documents.event_documents import TracedWindow
from traced_loops import traced_loop, written_trace
from traces import TraceBook


def rank_of(folder: Path, book: TraceBook, rank: int = 0) -> TracedRank:
    return traced_rank(read_trace_file(written_trace(folder / f"{rank}.json", book)), rank, 2)


def pair(folder: Path, one: TraceBook, other: TraceBook) -> Recording:
    return recording_of([rank_of(folder, one), rank_of(folder, other, 1)], "pair")


def test_a_recording_begins_with_its_first_step(tmp_path: Path) -> None:
    recording = recording_of([rank_of(tmp_path, traced_loop(steps=4))], "alone")
    meta = recording.meta
    assert (meta.name, meta.traced, meta.started_ns, meta.ended_ns) == ("alone", True, 0, 4 * 97_500_000)
    assert recording.steps[0]["t_start_ns"][0] == 0
    assert meta.started_unix_s == 1.0
    assert [event.rank for event in events_of(recording.events, TracedWindow)] == [0]


def test_facts_name_the_rank_and_the_size_of_the_job(tmp_path: Path) -> None:
    recording = recording_of([rank_of(tmp_path, traced_loop(), 1)], "one of two")
    (process,) = recording.processes
    facts = recording.facts[process.pid]
    assert (facts["rank"], facts["world_size"], process.rank) == (1, 2, 1)


def test_clocks_are_aligned_by_the_ends_of_collectives(tmp_path: Path) -> None:
    recording = pair(
        tmp_path, traced_loop(exchange=2_000.0), traced_loop(exchange=2_000.0, begin=1_000_000.0 + 5_000_000.0)
    )
    starts = [recording.steps[rank]["t_start_ns"] for rank in (0, 1)]
    assert np.abs(starts[0] - starts[1]).max() < 1_000_000


def test_clocks_that_nothing_compares_stay_as_they_are(tmp_path: Path) -> None:
    recording = pair(tmp_path, traced_loop(), traced_loop(begin=6_000_000.0))
    assert recording.steps[1]["t_start_ns"][0] - recording.steps[0]["t_start_ns"][0] == 5_000_000_000


def test_steps_without_numbers_get_those_of_the_first_rank(tmp_path: Path) -> None:
    whole = traced_loop(steps=5, exchange=2_000.0)
    late = traced_loop(steps=4, exchange=2_000.0, profiler_step=False, begin=1_000_000.0 + 99_500.0)
    recording = pair(tmp_path, whole, late)
    assert recording.steps[1]["step"].tolist() == [6, 7, 8, 9]
    assert recording.comm[1]["step"].tolist() == [6, 7, 8, 9]


def test_what_a_trace_does_not_show_is_a_gap(tmp_path: Path) -> None:
    blind = traced_loop(on_gpu=False)
    blind.call("cudaLaunchKernel", 1_000_100, 5.0)
    recording = recording_of([rank_of(tmp_path, blind)], "blind", ["old.json"])
    assert [gap.metric for gap in recording.gaps] == ["machine and job", "kernels", "traces"]
    assert "old.json" in recording.gaps[2].reason
