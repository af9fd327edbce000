"""A result goes where it was asked for, in the format that was asked for; what cannot be written is said early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.commands.result_output import check_writable, chosen, show, write
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report import render


@pytest.mark.parametrize(
    ("format_", "output", "expected"),
    [
        (None, None, "text"),
        (None, "a.html", "html"),
        (None, "a.JSON", "json"),
        (None, "a.out", "text"),
        (None, "/dev/stdout", "text"),
        ("md", "a.html", "md"),
        ("json", None, "json"),
    ],
)
def test_a_format_goes_before_the_files_name(format_: str | None, output: str | None, expected: str) -> None:
    assert chosen(format_, Path(output) if output else None) == expected


def test_folders_of_results_are_made_and_nothing_is_written(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c.json", None, tmp_path / "d.json")
    assert (tmp_path / "a" / "b").is_dir()
    assert [path.name for path in tmp_path.rglob("*.json")] == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AdvisorError, match=r"cannot write .*c\.json"):
        check_writable(tmp_path / "file" / "c.json")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match=r"cannot write .*: Is a directory"):
        write(samples.healthy(), tmp_path, "json")


@pytest.mark.parametrize("format_", ["text", "json", "md", "html"])
def test_stdout_and_a_file_get_the_same(
    format_: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    report = samples.bottleneck()
    show(report, format_, None)
    printed = capsysbinary.readouterr().out.decode()
    show(report, format_, tmp_path / "file")
    assert capsysbinary.readouterr().out == b""
    assert printed == (tmp_path / "file").read_text(encoding="utf-8") == render(report, format_)


@pytest.mark.parametrize("format_", ["text", "html"])
def test_bytes_that_are_no_utf_8_end_no_report(format_: str, tmp_path: Path) -> None:
    write(samples.hostile(), tmp_path / "file", format_)
    assert "\ufffd" in (tmp_path / "file").read_bytes().decode("utf-8")


@pytest.mark.parametrize("format_", ["text", "json"])
def test_without_a_stdout_it_is_an_error_that_names_it(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OSError, match="standard output"):
        show(samples.healthy(), format_, None)


def test_json_on_stdout_is_the_whole_contract(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    show(samples.bottleneck(), "json", None)
    assert json.loads(capsysbinary.readouterr().out) == json.loads(render(samples.bottleneck(), "json"))
