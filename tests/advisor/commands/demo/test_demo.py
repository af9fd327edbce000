"""The command `demo`: a replay on a terminal, a report without one, and a recorded run that tells nothing of who made it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands.demo import demo as command
from rn50_advisor.advisor.commands.saved_reports import in_temporary_folder
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.store.run_access import table_names
from rn50_advisor.advisor.store.run_bundle import unpack_bundle
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.tui.report_source import ReplayedRun
from rn50_advisor.advisor.verdict.diagnose import diagnose

BYTES_MAX = 300_000
# Folders of any Linux, and those that samples/record_demo.py puts in place of its own.
NEUTRAL = ("/dev/", "/usr/", "/home/user/resnet50", "/opt/train/", "/opt/rn50-advisor/")
PATH = re.compile(r"(?<![\w.*<}-])/[A-Za-z][\w.@+-]*/[\w.@+/-]+")


def texts(bundle: Path, folder: Path) -> list[str]:
    """Returns all texts in the run file of a bundle, except the sources: these are the sample's."""
    database = unpack_bundle(bundle, folder)
    with closing(sqlite3.connect(database)) as db:
        columns = [
            (table, row[1])
            for table in table_names(db) - {"sources"}
            for row in db.execute(f'PRAGMA table_info("{table}")')
            if row[2] == "TEXT"
        ]
        return [str(text) for table, name in columns for (text,) in db.execute(f'SELECT "{name}" FROM "{table}"')]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("arguments", "terminal"), [([], False), (["--no-tui"], True), (["--full"], True)])
def test_without_a_screen_it_prints_the_report(
    arguments: list[str], terminal: bool, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "has_terminal", lambda: terminal)
    done = CliRunner().invoke(command.demo, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "DAT003" in done.output and "--workers 1" in done.output
    assert ("NOT MEASURED" in done.output) == ("--full" in arguments)
    assert "report --" not in done.output  # of which run? the page names options of demo
    assert ("demo --full" in done.output) == ("--full" not in arguments)
    assert list(empty_folder.iterdir()) == []  # no run of the user's, no `latest`


def test_on_a_terminal_it_replays_the_run(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[AdvisorApp] = []

    def run_app(app: AdvisorApp) -> None:
        shown.append(app)

    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(AdvisorApp, "run", run_app)
    CliRunner().invoke(command.demo, ["--speed", "8"], catch_exceptions=False)
    (app,) = shown
    assert isinstance(app.source, ReplayedRun)
    assert (app.source.run_path, app.source.speed) == (command.RUN, 8.0)
    assert app.save is in_temporary_folder, "a report saved from the screen replaces no file of the working folder"
    assert list(empty_folder.iterdir()) == []


def test_the_run_is_small_and_its_verdict_names_the_line_and_the_option() -> None:
    report = diagnose(read_job(command.RUN))
    finding = next(found for found in report.findings if found.rule == report.verdict.rule)
    assert command.RUN.stat().st_size <= BYTES_MAX
    assert report.verdict.rule == "DAT003" and report.job.exit_code == 0
    assert finding.fixes[0].where is not None and finding.saving is not None


def test_the_run_names_no_folder_host_or_user_of_the_machine_that_recorded_it(tmp_path: Path) -> None:
    found = texts(command.RUN, tmp_path)
    paths = {path for text in found for path in PATH.findall(text)}
    assert len(paths) > 5 and {path for path in paths if not path.startswith(NEUTRAL)} == set()
    meta = read_job(command.RUN).meta
    assert (meta.host, meta.cwd) == ("node0", "/home/user/resnet50")
    assert not [text for text in found if '"USER"' in text or '"HOME"' in text]
