"""The command `fleet`: its exit codes, and the baselines that it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rn50_advisor.advisor.commands.fleet import fleet
from rn50_advisor.advisor.model.documents.machine_triage import HOSTNAME, Band, Check, Triage, TriageVerdict
from rn50_advisor.advisor.model.documents.ranked_fleet import OutliersFound
from rn50_advisor.advisor.model.errors import NotARun

Run = Callable[..., Result]


def machine(name: str, *, copies: float = 20.0) -> str:
    """The JSON of a triage; `copies`: GB/s in memory."""
    checks = (
        Check(HOSTNAME, name, "", Band(), "ok"),
        Check("memory.copy_gb_per_s", copies, "GB/s", Band(10.0), "ok"),
        Check("disk.sync_ms", 2.0, "ms", Band(None, 20.0), "ok"),
    )
    return json.dumps(Triage(TriageVerdict("keep", ()), checks).as_json())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`fleet` beside the results of eight machines, of which the sixth is slow."""
    monkeypatch.chdir(tmp_path)
    for n in range(8):
        (tmp_path / f"m{n}.json").write_text(machine(f"m{n}", copies=12.0 if n == 5 else 20.0))
    return lambda *arguments: CliRunner().invoke(fleet, [str(argument) for argument in arguments])


def test_an_outlier_is_an_exit_code(run: Run, tmp_path: Path) -> None:
    ended = run(tmp_path)
    assert isinstance(ended.exception, OutliersFound) and ended.exception.exit_code == 3
    assert "m5" in ended.exception.message and "m5" in ended.output
    (tmp_path / "m5.json").unlink()
    assert run(tmp_path).exit_code == 0


def test_baselines_are_kept_and_used(run: Run, tmp_path: Path) -> None:
    run(tmp_path, "--save-baseline", "baseline.json", "-o", "fleet.html")
    assert (tmp_path / "fleet.html").read_text().startswith("<!DOCTYPE html>")
    assert isinstance(run("m5.json", "--baseline", "baseline.json").exception, OutliersFound)
    assert run("m4.json", "--baseline", "baseline.json").exit_code == 0


def test_nothing_to_read_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert isinstance(run("empty").exception, NotARun)
    (tmp_path / "other.json").write_text("{}")
    assert isinstance(run("other.json").exception, NotARun)
