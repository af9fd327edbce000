"""The service, the change and the addresses that an environment tells of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.commands.checked.change_comments import GitHubComments, GitLabNotes
from rn50_advisor.advisor.commands.checked.ci_service import in_repository, service_of
from rn50_advisor.advisor.model.findings import Where

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_API_URL": "https://api.forge",
    "GITHUB_SERVER_URL": "https://forge",
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_RUN_ID": "9",
    "GITHUB_SHA": "merge",
    "GITHUB_TOKEN": "secret",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_API_V4_URL": "https://forge/api/v4",
    "CI_PROJECT_ID": "1",
    "CI_PROJECT_URL": "https://forge/o/r",
    "CI_JOB_URL": "https://forge/o/r/-/jobs/3",
    "CI_COMMIT_SHA": "abc",
}


def pull(tmp_path: Path, repository: str = "o/r") -> dict[str, str]:
    head = {"sha": "head", "repo": {"full_name": repository}}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 5, "head": head}}))
    return {**GITHUB, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_WORKSPACE": str(tmp_path)}


def test_a_pull_request_of_github(tmp_path: Path) -> None:
    made = service_of(pull(tmp_path), "files")
    assert made.comments == GitHubComments("https://api.forge", "o/r", 5, "secret")
    assert made.links.run == "https://forge/o/r/actions/runs/9#artifacts"
    assert made.links.source == "https://forge/o/r/blob/head/"
    assert made.root == tmp_path and "pull-requests: write" in made.needs


def test_a_pull_request_from_a_fork_has_its_own_reason(tmp_path: Path) -> None:
    assert "fork" in service_of(pull(tmp_path, "stranger/r"), "files").needs


@pytest.mark.parametrize("event", ["", "{", "[]", '{"pull_request": 3}', '{"pull_request": {"number": "5; rm"}}'])
def test_a_push_to_github_has_no_comment_and_says_nothing_about_it(event: str, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text(event)
    made = service_of({**GITHUB, "GITHUB_EVENT_PATH": str(tmp_path / "event.json")}, "files")
    assert (made.name, made.comments, made.needs) == ("github", None, "")
    assert made.links.source == "https://forge/o/r/blob/merge/"


def test_a_merge_request_of_gitlab_needs_a_token_that_may_write() -> None:
    change = {**GITLAB, "CI_MERGE_REQUEST_IID": "5"}
    silent = service_of(change, "files")
    assert silent.comments is None and "GITLAB_TOKEN" in silent.needs
    made = service_of({**change, "GITLAB_TOKEN": "secret"}, "files")
    assert made.comments == GitLabNotes("https://forge/api/v4", "1", 5, "secret")
    assert made.links.run == "https://forge/o/r/-/jobs/3/artifacts/browse/files"
    assert made.links.source == "https://forge/o/r/-/blob/abc/"
    assert (service_of(GITLAB, "files").comments, service_of(GITLAB, "files").needs) == (None, "")


def test_elsewhere_there_is_no_service() -> None:
    assert service_of({}, "files").name == "none"


def test_a_place_is_relative_to_its_own_repository(tmp_path: Path) -> None:
    for file in (".git", "work/code/.git", "work/code/src/train.py", "work/tool.py", "other/lib.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    root, job = tmp_path / "work", str(tmp_path / "work/code/src")

    def found(file: str, line: int = 3) -> Any:
        return in_repository(Where(file, line), job, root)

    assert found("train.py") == found(str(tmp_path / "work/code/src/train.py")) == Where("src/train.py", 3)
    assert found("../../tool.py") == Where("tool.py", 3)
    assert found("train.py", 0) == Where("src/train.py", 1)
    assert found("gone.py") is None and found(str(tmp_path / "other/lib.py")) is None
    assert found("<string>") is None


@pytest.mark.parametrize("file", ["a" * 5000, "x\0y", "circle/x"])
def test_a_place_that_is_no_file_at_all_is_in_no_repository(file: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert in_repository(Where(file, 1), str(tmp_path), tmp_path) is None
