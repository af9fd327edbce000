"""A report saved from the screen lies in the run's folder, or beside a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.commands.saved_reports import in_temporary_folder, keep_verdict, page_for_browser, saver
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.report import render
from rn50_advisor.advisor.store.run_rows import row_of
from store_rows import T0_NS
from written_runs import written_run


@pytest.mark.parametrize(("format", "name"), [("text", "report.txt"), ("json", "report.json"), ("html", "report.html")])
def test_it_lies_in_the_runs_folder_and_replaces_the_last_one(format: str, name: str, tmp_path: Path) -> None:
    save = saver(tmp_path)
    save(samples.healthy(), format)
    path = save(samples.bottleneck(), format)
    assert path == tmp_path / name and path.read_text() == render(samples.bottleneck(), format)
    assert list(tmp_path.iterdir()) == [path]


def test_of_a_bundle_it_lies_beside_it(tmp_path: Path) -> None:
    bundle = tmp_path / "slow.tar.gz"
    bundle.touch()
    assert saver(bundle)(samples.healthy(), "md") == tmp_path / "report.md"


def test_bytes_that_are_no_utf_8_are_written_all_the_same(tmp_path: Path) -> None:
    assert saver(tmp_path)(samples.hostile(), "html").read_bytes().decode("utf-8").startswith("<!DOCTYPE html>")


def test_where_nothing_can_be_written_the_screen_shows_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        saver(tmp_path / "gone" / "run")(samples.healthy(), "json")


def test_a_page_for_the_browser_lies_in_the_runs_folder_or_in_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run, bundle = tmp_path / "run", tmp_path / "run.tar.gz"
    run.mkdir()
    assert page_for_browser(samples.healthy(), run) == run / "report.html"
    bundle.touch()
    (blocked := tmp_path / "blocked" / "report.html").mkdir(parents=True)  # cannot be replaced by a file
    for other in (bundle, blocked.parent):
        page = page_for_browser(samples.healthy(), other)
        assert page.parent.parent == tmp_path and page.parent.name.startswith("rn50-advisor-")


def test_a_report_without_a_run_of_its_own_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    first, second = (in_temporary_folder(samples.healthy(), "md") for _ in range(2))
    assert first.name == second.name == "report.md" and first != second
    assert sorted(tmp_path.iterdir()) == sorted([first.parent, second.parent])


def test_a_verdict_is_kept_beside_its_run(tmp_path: Path) -> None:
    run = written_run(tmp_path / "20250101-000000-run", started_unix_s=1.7e9, ended_ns=T0_NS + 10**9, steps=3)
    assert row_of(run).state == "not judged"
    keep_verdict(run, Config())
    assert row_of(run).state != "not judged"
    with pytest.raises(NotARun):
        keep_verdict(tmp_path / "none", Config())
