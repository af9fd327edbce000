"""Puts one comment on a pull or merge request, and at the next push replaces its text. What it needs of the two services, no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import quote

from rn50_advisor.advisor.outlets.json_requests import RequestFailed, ask

PAGE = 100  # comments in an answer, the most that either service gives
PAGES_MAX = 20
_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")
_NOT_OURS = (403, 404)

Put = Literal["new", "updated"]


class Comments(Protocol):
    """The comments on one change. All methods raise RequestFailed."""

    def own(self, marker: str) -> int | None: ...

    def add(self, text: str) -> None: ...

    def replace(self, number: int, text: str) -> None: ...


def put_comment(comments: Comments, marker: str, text: str) -> Put:
    """Replaces our comment, or adds it. Raises RequestFailed."""
    number = comments.own(marker)
    if number is not None:
        try:
            comments.replace(number, text)
        except RequestFailed as error:
            if error.status not in _NOT_OURS:
                raise
        else:
            return "updated"
    comments.add(text)
    return "new"


@dataclass(frozen=True, slots=True)
class GitHubComments:
    """The comments on a pull request: in GitHub's API those of an issue."""

    api: str
    repository: str  # owner/name
    number: int
    token: str = field(repr=False)

    def own(self, marker: str) -> int | None:
        """The first comment with our marker, by an app or by somebody who may write here: others could pretend to be us."""
        pages = (f"{self._issues}/{self.number}/comments?per_page={PAGE}&page={n}" for n in range(1, PAGES_MAX + 1))
        for one in _listed(pages, self._headers):
            if str(one.get("body", "")).startswith(marker) and (
                (one.get("user") or {}).get("type") == "Bot" or one.get("author_association") in _TRUSTED
            ):
                return int(one["id"])
        return None

    def add(self, text: str) -> None:
        ask("POST", f"{self._issues}/{self.number}/comments", {"body": text}, headers=self._headers)

    def replace(self, number: int, text: str) -> None:
        ask("PATCH", f"{self._issues}/comments/{number}", {"body": text}, headers=self._headers)

    @property
    def _issues(self) -> str:
        return f"{self.api}/repos/{quote(self.repository)}/issues"

    @property
    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }


@dataclass(frozen=True, slots=True)
class GitLabNotes:
    """The notes on a merge request. A job's own token cannot write them; a project access token can."""

    api: str
    project: str
    number: int
    token: str = field(repr=False)

    def own(self, marker: str) -> int | None:
        """The first note with our marker that the token's user wrote."""
        me = ask("GET", f"{self.api}/user", headers=self._headers).content
        mine = me.get("id") if isinstance(me, dict) else None
        order = f"per_page={PAGE}&sort=asc&order_by=created_at"
        for one in _listed((f"{self._notes}?{order}&page={n}" for n in range(1, PAGES_MAX + 1)), self._headers):
            if str(one.get("body", "")).startswith(marker) and (one.get("author") or {}).get("id") == mine:
                return int(one["id"])
        return None

    def add(self, text: str) -> None:
        ask("POST", self._notes, {"body": text}, headers=self._headers)

    def replace(self, number: int, text: str) -> None:
        ask("PUT", f"{self._notes}/{number}", {"body": text}, headers=self._headers)

    @property
    def _notes(self) -> str:
        return f"{self.api}/projects/{quote(self.project, safe='')}/merge_requests/{self.number}/notes"

    @property
    def _headers(self) -> dict[str, str]:
        return {"PRIVATE-TOKEN": self.token}


def _listed(pages: Iterator[str], headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for page in pages:
        found = ask("GET", page, headers=headers).content
        if not isinstance(found, list):
            raise RequestFailed("the list of comments could not be read")
        yield from (one for one in found if isinstance(one, dict))
        if len(found) < PAGE:
            return
