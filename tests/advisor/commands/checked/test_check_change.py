"""`ci` on written runs: its files, what it prints for a runner, its comment, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from change_services import dead_url, forge, silent_url
from rn50_advisor.advisor.commands.checked.check_change import ci
from rn50_advisor.advisor.model.errors import NotARun, NotComparable, Regressed
from rn50_advisor.advisor.outlets import json_requests
from store_rows import MS
from written_runs import written_run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run_of(folder: Path, step_ms: int = 10, steps: int = 100) -> str:
    return str(written_run(folder, steps=steps, took_ns=step_ms * MS, name="resnet"))


@pytest.fixture
def pull_request(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (place / "event.json").write_text(json.dumps({"pull_request": {"number": 5}}))
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(place / "event.json"),
        "GITHUB_WORKSPACE": str(place),
        "GITHUB_STEP_SUMMARY": str(place / "summary"),
        "GITHUB_OUTPUT": str(place / "output"),
        "GITHUB_TOKEN": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    return place


def called(*arguments: str) -> Result:
    return CliRunner().invoke(ci, arguments)


def test_anywhere_it_writes_pages_json_the_comment_and_the_run(place: Path) -> None:
    done = called(run_of(place / "r"), "--files", "out/files")
    assert done.exit_code == 0, done.output
    names = {"report.html", "report.json", "comment.md", "gl-code-quality-report.json", "run.tar.gz"}
    assert {path.name for path in (place / "out/files").iterdir()} == names
    assert json.loads((place / "out/files/gl-code-quality-report.json").read_text()) == []
    assert "No earlier run" in (place / "out/files/comment.md").read_text()
    assert "::" not in done.stdout, "commands are for GitHub's runner"
    again = called(str(place / "out/files/run.tar.gz"), "--base", str(place / "r"))
    assert again.exit_code == 0 and "same" in again.stdout
    assert (place / "rn50-advisor-ci/comparison.html").is_file()


def test_a_slower_run_ends_as_compare_does_after_all_is_written(pull_request: Path) -> None:
    base, slow, short = run_of(pull_request / "b"), run_of(pull_request / "s", 15), run_of(pull_request / "n", steps=1)
    with forge() as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_API_URL", service.url)
        slower = called(slow, "--base", base, "--max-regression", "5")
        assert isinstance(slower.exception, Regressed)
        assert isinstance(called(short, "--base", base, "--max-regression", "5").exception, NotComparable)
        assert called(slow, "--base", base, "--max-regression", "50").exit_code == 0
        assert called(slow, "--base", base).exit_code == 0
        assert len(service.texts) == 1 and "regressed" in service.texts[0]
    assert "::error title=Training became slower::this change against base: 0.67×" in slower.stdout
    assert isinstance(called(slow, "--base", "missing.tar.gz").exception, NotARun)


def test_github_gets_summary_outputs_and_annotations_behind_a_fence(pull_request: Path) -> None:
    done = called(run_of(pull_request / "r"), "--no-comment")
    assert done.exit_code == 0, done.output
    fence = done.stdout.splitlines()[0].removeprefix("::stop-commands::")
    assert len(fence) == 32 and f"\n::{fence}::\n" in done.stdout
    outputs = dict(line.split("=", 1) for line in (pull_request / "output").read_text().splitlines())
    assert outputs["verdict"] in ("healthy", "inconclusive", "bottleneck") and outputs["change"] == ""
    summary = (pull_request / "summary").read_text()
    assert summary.startswith("<!-- rn50-advisor ci: resnet -->") and "## Step time breakdown" in summary
    assert "comment" not in done.stderr


def test_a_limit_without_a_base_judges_nothing_and_says_so(place: Path) -> None:
    done = called(run_of(place / "r"), "--max-regression", "5")
    assert done.exit_code == 0 and "judged nothing" in done.stderr


def test_a_comment_that_cannot_be_written_is_one_line_and_no_failure(
    pull_request: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(pull_request / "r")
    monkeypatch.setattr(json_requests, "LONGEST_S", 0.2)
    monkeypatch.setattr(json_requests.ask, "__kwdefaults__", {"longest_s": 0.2})
    with (
        forge(status=403, answer={"message": "Resource not accessible by integration"}) as refusing,
        silent_url() as slow,
    ):
        for url, says in (
            (refusing.url, "HTTP 403: Resource not accessible by integration; the job needs the permission"),
            (slow, "no answer"),
            (dead_url(), "Connection refused"),
        ):
            monkeypatch.setenv("GITHUB_API_URL", url)
            done = called(run)
            assert done.exit_code == 0
            (line,) = [line for line in done.stderr.splitlines() if "comment" in line]
            assert says in line and "secret" not in done.output
    monkeypatch.delenv("GITHUB_TOKEN")
    assert "no comment was written: the job needs" in called(run).stderr
