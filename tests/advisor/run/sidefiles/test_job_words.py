"""What the job and its libraries printed is kept with the run: in full only where the job failed."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.advisor.model.recording import events_of
from rn50_advisor.advisor.run.sidefiles.job_words import JobWords
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.schema import OUTPUT_NAME
from rn50_advisor.probes.documents.event_documents import FlightDumps, NcclPrinted, PrintedLines
from waiting import wait_for

NCCL = "host:1:2 [0] NCCL INFO Using network Socket"


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunWriter:
    for name in os.environ:
        if name.startswith(("NCCL_", "TORCH_")):
            monkeypatch.delenv(name)
    return RunWriter.create(tmp_path / "run", meta={})


def words(writer: RunWriter, since_unix_s: float = 0.0) -> JobWords:
    return JobWords(writer, launcher_pid=os.getpid(), printed_before=(0, 0), since_unix_s=since_unix_s)


def closed(writer: RunWriter) -> Any:
    folder = writer.folder
    writer.close()
    return read_recording(folder)


def test_the_last_lines_behind_the_screen_are_kept(writer: RunWriter) -> None:
    (writer.folder / OUTPUT_NAME).write_text("epoch 1\nRuntimeError: no memory\n")
    words(writer).keep_output(5000)
    found = closed(writer)
    (printed,) = events_of(found.events, PrintedLines)
    assert printed.t_ns == 5000
    assert "RuntimeError: no memory" in str(printed.data["lines"])
    assert not found.gaps


def test_output_that_went_to_a_terminal_or_a_pipe_is_a_gap(writer: RunWriter) -> None:
    words(writer).keep_output(5000)
    found = closed(writer)
    assert events_of(found.events, PrintedLines) == []
    assert [(gap.metric, "--no-tui" in gap.hint) for gap in found.gaps] == [("output", True)]


def test_what_a_rank_printed_to_a_file_is_kept(writer: RunWriter, tmp_path: Path) -> None:
    log = tmp_path / "rank1.err"
    with log.open("w") as file:
        child = os.posix_spawn(
            "/bin/sh", ["sh", "-c", "echo 'RuntimeError: of rank 1' >&2; cat"], {}, file_actions=_streams(file.fileno())
        )
    try:
        wait_for(log.read_text, "its first line")
        kept = words(writer)
        kept.look([SimpleNamespace(pid=child, rank=1)])  # type: ignore[list-item]
        kept.ended(child)
        kept.keep_output(5000)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    (printed,) = events_of(closed(writer).events, PrintedLines)
    assert "RuntimeError: of rank 1" in str(printed.data["lines"])


def _streams(descriptor: int) -> list[Any]:
    read, _ = os.pipe()
    return [(os.POSIX_SPAWN_DUP2, read, 0), (os.POSIX_SPAWN_DUP2, descriptor, 2)]


def test_nccls_lines_are_kept_where_the_user_has_them_written(
    writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(f"{NCCL}\n")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_DEBUG_FILE", str(log))
    words(writer).keep_nccl()
    (printed,) = events_of(closed(writer).events, NcclPrinted)
    assert "Using network Socket" in str(printed.data["lines"])


def test_where_nccl_said_nothing_nothing_is_kept(writer: RunWriter) -> None:
    words(writer).keep_nccl()
    assert closed(writer).events == ()


def test_dumps_of_a_watchdog_are_kept_by_rank(
    writer: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "trace_"))
    began_s = time.time() - 100
    words(writer, began_s).keep_flight(4000)
    entries = [{"profiling_name": "nccl:all_reduce", "collective_seq_id": 9, "state": "started"}]
    (tmp_path / "trace_3").write_bytes(pickle.dumps({"version": "2.10", "entries": entries}))
    words(writer, began_s).keep_flight(5000)
    (dumped,) = events_of(closed(writer).events, FlightDumps)
    assert dumped.t_ns == 5000
    assert dumped.data["ranks"]["3"]["entries"] == entries
