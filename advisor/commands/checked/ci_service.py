"""The CI service that this process runs in, from its environment: the change, the repository, addresses and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rn50_advisor.advisor.commands.checked.change_comments import Comments, GitHubComments, GitLabNotes
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.report.checked.comment import Links

ServiceName = Literal["github", "gitlab", "none"]

_OF_A_FORK = "a pull request from a fork has no token that may write"
_PERMISSION = "the job needs the permission pull-requests: write"


@dataclass(frozen=True, slots=True)
class Service:
    """`comments` is None where there is no change, or no token; `needs` says what writing a comment takes, if there is a change."""

    name: ServiceName
    root: Path  # of the repository
    links: Links = field(default_factory=Links)
    comments: Comments | None = None
    needs: str = ""
    summary_file: str = ""
    output_file: str = ""


def service_of(environment: Mapping[str, str], pages: str) -> Service:
    """The service whose variables these are. `pages`: the folder that the job keeps as its files."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return _github(environment)
    if environment.get("GITLAB_CI") == "true":
        return _gitlab(environment, pages)
    return Service("none", Path.cwd())


def in_repository(where: Where, job_folder: str, root: Path) -> Where | None:
    """The place relative to the root of its repository; None if it is not below `root`.

    A job may check out several repositories below `root`: the nearest folder above the file that has `.git` counts, else `root` itself.
    """
    try:
        file, top = (Path(job_folder) / where.file).resolve(), root.resolve()
        if not file.is_relative_to(top) or not file.is_file():
            return None
        below = (folder for folder in file.parents if folder.is_relative_to(top))
        own = next((folder for folder in below if (folder / ".git").exists()), top)
    except (OSError, ValueError, RuntimeError):  # a job's own name for code: too long, with a NUL, links in a circle
        return None
    return Where(file.relative_to(own).as_posix(), max(1, where.line))


def _github(environment: Mapping[str, str]) -> Service:
    event = _event(environment.get("GITHUB_EVENT_PATH", ""))
    pull = event.get("pull_request")
    pull = pull if isinstance(pull, dict) else {}
    repository, token = environment.get("GITHUB_REPOSITORY", ""), environment.get("GITHUB_TOKEN", "")
    number = pull.get("number")
    head = pull.get("head") or {}
    here = f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
    fork = (head.get("repo") or {}).get("full_name", repository) != repository
    comments = None
    if isinstance(number, int) and repository and token:
        api = environment.get("GITHUB_API_URL", "https://api.github.com")
        comments = GitHubComments(api, repository, number, token)
    return Service(
        "github",
        Path(environment.get("GITHUB_WORKSPACE") or Path.cwd()),
        Links(
            f"{here}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}#artifacts",
            f"{here}/blob/{head.get('sha') or environment.get('GITHUB_SHA', '')}/",
            environment.get("RN50_ADVISOR_ARTIFACT", ""),
        ),
        comments,
        (_OF_A_FORK if fork else _PERMISSION) if isinstance(number, int) else "",
        environment.get("GITHUB_STEP_SUMMARY", ""),
        environment.get("GITHUB_OUTPUT", ""),
    )


def _gitlab(environment: Mapping[str, str], pages: str) -> Service:
    project, number = environment.get("CI_PROJECT_ID", ""), environment.get("CI_MERGE_REQUEST_IID", "")
    token, job = environment.get("GITLAB_TOKEN", ""), environment.get("CI_JOB_URL", "")
    comments = None
    if number.isdecimal() and token:
        comments = GitLabNotes(environment.get("CI_API_V4_URL", ""), project, int(number), token)
    return Service(
        "gitlab",
        Path(environment.get("CI_PROJECT_DIR") or Path.cwd()),
        Links(
            f"{job}/artifacts/browse/{pages}" if job else "",
            f"{environment.get('CI_PROJECT_URL', '')}/-/blob/{environment.get('CI_COMMIT_SHA', '')}/",
        ),
        comments,
        "it takes GITLAB_TOKEN, a project access token with the scope api" if number else "",
    )


def _event(path: str) -> dict[str, Any]:
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}
