"""The summary beside a run is written in one step, read cheaply, and never taken from another file of its name."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
from finished_runs import on_database
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_summary import (
    SUMMARY_NAME,
    RunTimes,
    read_summary,
    read_times,
    summary_of,
    write_summary,
)
from store_rows import T0_NS
from written_runs import written_run


def with_saving(saving: Saving | None) -> Report:
    report = samples.bottleneck()
    findings = [replace(f, saving=saving) if f.rule == report.verdict.rule else f for f in report.findings]
    return replace(report, findings=tuple(findings))


def test_a_summary_comes_back_as_it_was_written_and_is_private(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run")
    saving = Saving((0.1, 0.2), (1.2, 1.6), "", likely=1.4)
    summary = summary_of(with_saving(saving), read_recording(run))
    write_summary(run, summary)
    assert read_summary(run) == summary
    assert (summary.state, summary.likely, summary.speedup) == ("bottleneck", 1.4, (1.2, 1.6))
    assert (run / SUMMARY_NAME).stat().st_mode & 0o777 == 0o600
    write_summary(run, replace(summary, title="another", samples_per_s=None))
    assert read_summary(run) == replace(summary, title="another", samples_per_s=None)
    assert sorted(path.name for path in run.iterdir()) == ["run.sqlite", SUMMARY_NAME]


@pytest.mark.parametrize(
    ("saving", "likely", "speedup"),
    [
        (None, None, None),
        (Saving((0.0, 0.0), (0.9, 1.0), "", likely=1.0), None, None),  # no gain
        (Saving((0.1, 0.9), (1.1, 3.0), "", likely=1.5), None, (1.1, 3.0)),  # too wide for a likely value
    ],
)
def test_only_a_gain_that_reports_show_is_kept(
    tmp_path: Path, saving: Saving | None, likely: float | None, speedup: tuple[float, float] | None
) -> None:
    summary = summary_of(with_saving(saving), read_recording(written_run(tmp_path / "run")))
    assert (summary.likely, summary.speedup) == (likely, speedup)


def test_a_number_that_is_none_does_not_spoil_the_summary(tmp_path: Path) -> None:
    run, report = written_run(tmp_path / "run"), samples.bottleneck()
    report = replace(report, throughput=replace(report.throughput, samples_per_s=float("nan")))
    write_summary(run, summary_of(report, read_recording(run)))
    found = read_summary(run)
    assert found is not None and found.samples_per_s is None


def test_another_file_of_this_name_is_no_summary(tmp_path: Path) -> None:
    assert read_summary(tmp_path) is None
    file = tmp_path / SUMMARY_NAME
    for text in ("", "mine", "[]", '{"state": "bottleneck"}', '{"schema": "mine/1", "state": "healthy"}', "[" * 60_000):
        file.write_text(text)
        assert read_summary(tmp_path) is None, text[:20]
    file.unlink()
    write_summary(tmp_path, summary_of(samples.healthy(), read_recording(written_run(tmp_path / "run"))))
    document = json.loads(file.read_text())
    for started in (-1.0, 1e300):
        file.write_text(json.dumps({**document, "started_unix_s": started}))
        assert read_summary(tmp_path) is None
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert read_summary(tmp_path) is None
    file.unlink()
    os.mkfifo(file)
    assert read_summary(tmp_path) is None
    assert document["schema"] == "rn50-advisor/summary/1"


def test_the_times_of_a_run_are_read_without_the_run(tmp_path: Path) -> None:
    ended = written_run(tmp_path / "ended", ended_ns=T0_NS + 3 * 10**9)
    assert read_times(ended) == RunTimes(1.7e9, 3.0, ended=True)
    broken = written_run(tmp_path / "broken", last_ns=T0_NS + 2 * 10**9)
    on_database(f"UPDATE meta SET value = '{T0_NS + 2 * 10**9}' WHERE key = 'last_ns'")(broken)
    assert read_times(broken) == RunTimes(1.7e9, 2.0, ended=False)


@pytest.mark.parametrize("value", ["'soon'", "'\"soon\"'", "'null'", "'1e999'", "'NaN'", f"'1{'0' * 400}'"])
def test_a_run_whose_times_are_damaged_is_refused(tmp_path: Path, value: str) -> None:
    for key in ("started_ns", "started_unix_s"):
        run = written_run(tmp_path / key)
        on_database(f"UPDATE meta SET value = {value} WHERE key = '{key}'")(run)
        with pytest.raises(NotARun):
            read_times(run)
