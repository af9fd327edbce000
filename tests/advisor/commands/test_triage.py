"""The command `triage`, from its options to its files and exit codes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import triage_samples
from rn50_advisor.advisor.commands import triage as command
from rn50_advisor.advisor.model.documents.machine_triage import (
    Triage,
    parse_triage,
)
from rn50_advisor.advisor.triage import deadline, triage_runner
from rn50_advisor.advisor.triage.found_checks import Remedy, TriageOptions


def invoke(monkeypatch: pytest.MonkeyPatch, found: Triage, *arguments: str) -> tuple[int, str, list[TriageOptions]]:
    settings: list[TriageOptions] = []

    def examine(setting: TriageOptions, announce: triage_runner.Announce) -> Triage:
        settings.append(setting)
        assert setting.scratch.is_dir()
        announce("the disk", 1, 2)
        return found

    monkeypatch.setattr(triage_runner, "triage", examine)
    done = CliRunner().invoke(command.triage, list(arguments))
    return done.exit_code, done.stdout, settings


@pytest.mark.parametrize(("remedy", "code"), [("note", 0), ("fix", 3), ("hand-back", 4)])
def test_the_exit_code_is_the_verdict(monkeypatch: pytest.MonkeyPatch, remedy: Remedy, code: int) -> None:
    assert invoke(monkeypatch, triage_samples.made(remedy))[0] == code


def test_the_format_is_asked_for_or_follows_from_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, out, settings = invoke(monkeypatch, triage_samples.made(), "--format", "json")
    assert code == 3 and parse_triage(out) == triage_samples.made()
    assert not settings[0].scratch.exists() and not settings[0].full and not settings[0].large
    assert invoke(monkeypatch, triage_samples.made(), "--format", "markdown")[1].startswith("# ▲ fix a setting")
    target = tmp_path / "x.html"
    assert (
        invoke(monkeypatch, triage_samples.made(), "-o", str(target))[1] == ""
        and "<!DOCTYPE html>" in target.read_text()
    )


def test_the_interpreter_is_named_from_the_root_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is started in the scratch folder."""
    given = os.path.relpath(sys.executable)
    assert Path(invoke(monkeypatch, triage_samples.made(), "--python", given)[2][0].python).is_absolute()


def test_nothing_large_is_done_unless_somebody_agreed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a terminal there is nobody to ask."""
    assert not invoke(monkeypatch, triage_samples.made(), "--full")[2][0].large
    assert invoke(monkeypatch, triage_samples.made(), "--full", "--yes")[2][0].large
    assert not invoke(monkeypatch, triage_samples.made(), "--yes")[2][0].large


def test_data_and_bundle_are_as_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "ticket.tar.gz"
    code, _, settings = invoke(
        monkeypatch, triage_samples.made(), "--data", str(tmp_path), "--scratch", str(tmp_path), "--bundle", str(target)
    )
    assert code == 3 and settings[0].data == tmp_path and settings[0].scratch.parent == tmp_path and target.exists()


def test_the_data_are_named_from_the_root_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The decoder runs in the scratch folder, so paths must be absolute."""
    monkeypatch.chdir(tmp_path.parent)
    assert invoke(monkeypatch, triage_samples.made(), "--data", tmp_path.name)[2][0].data == tmp_path


@pytest.mark.parametrize("option", ["--data", "--scratch"])
def test_a_folder_that_is_none_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        code, _, settings = invoke(monkeypatch, triage_samples.made(), option, str(tmp_path / name))
        assert code == 2 and settings == []


@pytest.mark.parametrize("option", ["--data", "--scratch"])
def test_a_folder_that_nobody_may_ask_about_is_none(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """Even root gets no answer for a name that is too long; Path.is_dir raised, as for PermissionError, before Python 3.14."""
    code, _, settings = invoke(monkeypatch, triage_samples.made(), option, "/" + "x" * 300)
    assert code == 2 and settings == []


def test_a_folder_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For data this is a finding; without a scratch folder nothing can be tried."""
    monkeypatch.setattr(deadline, "within", lambda seconds, ask: None)
    code, _, settings = invoke(monkeypatch, triage_samples.made(), "--data", str(tmp_path))
    assert code == 3 and settings[0].data == tmp_path and 0 < settings[0].left_s <= triage_runner.QUICK_LIMIT_S
    code, _, settings = invoke(monkeypatch, triage_samples.made(), "--scratch", str(tmp_path))
    assert code == 1 and settings == []
    assert invoke(monkeypatch, triage_samples.made(), "--full")[2][0].left_s > triage_runner.QUICK_LIMIT_S


def test_a_result_beside_runs_that_are_yet_to_come_has_its_folder_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "runs" / "triage.json"
    code, _, settings = invoke(monkeypatch, triage_samples.made(), "-o", str(target))
    assert code == 3 and len(settings) == 1 and parse_triage(target.read_text()) == triage_samples.made()


def test_nothing_is_measured_that_could_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for option in ("-o", "--bundle"):
        code, _, settings = invoke(monkeypatch, triage_samples.made(), option, str(tmp_path / "file" / "x.json"))
        assert code not in (0, 3, 4) and settings == []
