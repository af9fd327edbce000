"""The command `report`: which run, in which format, and where to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rn50_advisor.advisor.commands.report import report
from rn50_advisor.advisor.model.errors import NotARun
from written_runs import written_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, and a working directory without any configuration."""
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-first", steps=60)
    written_run(tmp_path / "runs" / "20250102-000000-second", steps=80)
    return tmp_path / "runs"


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(report, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("run", "steps"), [((), 80), (("first",), 60), (("runs/20250101-000000-first",), 60)])
def test_the_latest_run_is_shown_unless_another_is_named(runs: Path, run: tuple[str, ...], steps: int) -> None:
    done = invoked(*run, "--format", "json")
    assert json.loads(done.stdout)["step_time"]["steps"] == steps


def test_a_files_name_chooses_the_format(runs: Path, tmp_path: Path) -> None:
    done = invoked("-o", tmp_path / "r.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert invoked("-o", tmp_path / "plain").exit_code == 0
    assert (tmp_path / "plain").read_text().startswith("rn50-advisor report")


def test_a_configuration_is_judged_by(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('disable = ["LOP003"]\n')
    judged = [
        {row["rule"] for row in json.loads(invoked("--format", "json", *given).stdout)["outcomes"]}
        for given in ((), ("--config", tmp_path / "own.toml"))
    ]
    assert judged[0] - judged[1] == {"LOP003"}


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    done = invoked("none", "--run-dir", tmp_path)
    assert isinstance(done.exception, NotARun) and done.exception.exit_code == 2
