"""The command `watch`: which runs are live, and what it does without a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands import watch as command
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.tui.report_source import LiveSource, ReplayedRun
from written_runs import written_run

SECOND_NS = 1_000_000_000
# recorded from Unix second 1000 to 1060, on a clock of its own
RUNNING = Meta("x", ("t.py",), "/", "node", 1000.0, 5 * SECOND_NS, 65 * SECOND_NS)


@pytest.mark.parametrize(
    ("meta", "now_unix_s", "live"),
    [
        (RUNNING, 1061.0, True),
        (RUNNING, 1089.9, True),
        (RUNNING, 1090.1, False),
        (replace(RUNNING, ended_ns=65 * SECOND_NS), 1061.0, False),
        (replace(RUNNING, recording_stopped_ns=65 * SECOND_NS), 1061.0, False),
        (RUNNING, 900.0, True),  # this machine's clock goes behind
    ],
)
def test_a_run_is_live_while_somebody_writes_it(meta: Meta, now_unix_s: float, live: bool) -> None:
    assert command.is_live(meta, now_unix_s=now_unix_s) == live


def test_without_a_terminal_it_names_the_command_that_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "has_terminal", lambda: False)
    error = CliRunner().invoke(command.watch, ["some-run"]).exception
    assert isinstance(error, UsageError) and "rn50-advisor report some-run" in error.hint


@pytest.mark.parametrize(
    ("arguments", "started_unix_s", "speed"),
    [
        ([], 1.7e9, 1.0),
        (["--speed", "8"], 1.7e9, 8.0),
        ([], 1e11, None),
        (["--speed", "0.5"], 1e11, 0.5),
    ],
)
def test_an_old_run_is_replayed_and_a_live_one_is_followed(
    arguments: list[str], started_unix_s: float, speed: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[AdvisorApp] = []

    def run_app(app: AdvisorApp) -> None:
        opened.append(app)

    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr(AdvisorApp, "run", run_app)
    run = written_run(tmp_path / "run", started_unix_s=started_unix_s, exit_code=None)
    done = CliRunner().invoke(command.watch, [str(run), *arguments])
    assert done.exit_code == 0, done.exception
    (app,) = opened
    if speed is None:
        assert isinstance(app.source, LiveSource)
    else:
        assert isinstance(app.source, ReplayedRun) and app.source.speed == speed
    assert app.run_path == run
