"""A row of the list of runs says what is stored of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import report_samples as samples
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_rows import RunRow, as_json, row_of
from rn50_advisor.advisor.store.run_summary import summary_of, write_summary
from rn50_advisor.advisor.store.run_writer import RunWriter
from store_rows import T0_NS
from written_runs import written_run


def test_a_row_is_what_the_summary_says_or_the_times_in_the_run(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run", ended_ns=T0_NS + 2 * 10**9)
    (run / "own").mkdir()
    (run / "own" / "large").write_bytes(b"x" * 1000)
    size = (run / "run.sqlite").stat().st_size
    row = row_of(run)
    assert row == RunRow("run", str(run), "not judged", started_unix_s=1.7e9, duration_s=2.0, size_bytes=size)
    assert as_json(row)["started"] == "2023-11-14T22:13:20+00:00"
    summary = replace(summary_of(samples.healthy(), read_recording(run)), samples_per_s=12.5)
    write_summary(run, summary)
    row = row_of(run)
    assert (row.state, row.title, row.samples_per_s) == ("healthy", summary.title, 12.5)
    assert as_json(RunRow("x", "x", "unreadable"))["started"] is None


def test_a_run_under_way_is_shown_as_such_and_one_that_broke_off_too(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "now", meta={})
    assert row_of(tmp_path / "now").state == "recording"
    writer.close()
    row = row_of(tmp_path / "now")
    assert (row.state, row.title) == ("not judged", "the recording broke off")
