"""The command `bundle`: which run goes into which file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rn50_advisor.advisor.commands.bundle import bundle
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from written_runs import written_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-slow", argv=["train.py", "--token", "abc123"])


def made(*arguments: str) -> Result:
    return CliRunner().invoke(bundle, arguments)


def test_by_default_it_is_called_as_the_run_and_lies_here(tmp_path: Path) -> None:
    done = made("latest")
    assert done.output == "20250101-000000-slow.tar.gz\n"
    recording = read_job(tmp_path / "20250101-000000-slow.tar.gz")
    assert recording.meta.name == "20250101-000000-slow"
    assert "abc123" not in recording.meta.argv and len(recording.meta.argv) == 3


def test_a_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_text("precious")
    assert isinstance(made("slow", "-o", "x.tar.gz").exception, AdvisorError)
    assert (tmp_path / "x.tar.gz").read_text() == "precious"
    assert made("slow", "-o", "x.tar.gz", "--force").output == "x.tar.gz\n"
    assert read_job(tmp_path / "x.tar.gz").meta.exit_code == 0


def test_what_is_no_run_makes_no_file(tmp_path: Path) -> None:
    assert isinstance(made("fast").exception, NotARun)
    assert list(tmp_path.glob("*.tar.gz")) == []
