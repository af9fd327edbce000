"""One comment for each job of a change, ours and nobody else's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from change_services import Forge, forge
from rn50_advisor.advisor.commands.checked.change_comments import (
    PAGE,
    Comments,
    GitHubComments,
    GitLabNotes,
    put_comment,
)
from rn50_advisor.advisor.outlets.json_requests import RequestFailed

MARKER = "<!-- rn50-advisor ci: training -->"


def on_github(service: Forge) -> Comments:
    return GitHubComments(service.url, "o/r", 5, "secret")


def on_gitlab(service: Forge) -> Comments:
    return GitLabNotes(service.url, "1", 5, "secret")


SERVICES = pytest.mark.parametrize("of", [on_github, on_gitlab])


@SERVICES
def test_the_first_push_writes_a_comment_and_the_next_replaces_its_text(of: Callable[[Forge], Comments]) -> None:
    with forge() as service:
        service.comments.append({"id": 1, "body": "looks good", **service.author})
        assert put_comment(of(service), MARKER, f"{MARKER} one") == "new"
        assert (
            put_comment(of(service), "<!-- rn50-advisor ci: other -->", "<!-- rn50-advisor ci: other --> two") == "new"
        )
        assert put_comment(of(service), MARKER, f"{MARKER} three") == "updated"
        assert service.texts == ["looks good", f"{MARKER} three", "<!-- rn50-advisor ci: other --> two"]
        assert {token.split()[-1] for token in service.tokens} == {"secret"}


@SERVICES
def test_it_is_found_behind_a_hundred_others(of: Callable[[Forge], Comments]) -> None:
    with forge() as service:
        service.comments += [{"id": n + 1, "body": "me too", **service.author} for n in range(PAGE + 3)]
        assert put_comment(of(service), MARKER, MARKER) == "new"
        assert put_comment(of(service), MARKER, f"{MARKER} again") == "updated"


@SERVICES
def test_a_comment_of_somebody_else_with_our_marker_stays_as_it_is(of: Callable[[Forge], Comments]) -> None:
    stranger = {"user": {"type": "User"}, "author_association": "NONE", "author": {"id": 8}}
    with forge() as service:
        service.comments.append({"id": 1, "body": f"{MARKER} 9× faster", **stranger})
        service.comments.append({"id": 2, "body": f"I like {MARKER}", **service.author})
        assert put_comment(of(service), MARKER, f"{MARKER} real") == "new"
        assert service.texts[0].endswith("9× faster") and len(service.comments) == 3


def test_a_person_who_may_write_is_us_too() -> None:
    member = {"user": {"type": "User"}, "author_association": "COLLABORATOR", "author": {"id": 7}}
    with forge(author=member) as service:
        assert [put_comment(on_github(service), MARKER, MARKER) for _ in range(2)] == ["new", "updated"]


@SERVICES
def test_a_refusal_is_raised(of: Callable[[Forge], Comments]) -> None:
    with forge(status=403, answer={"message": "no"}) as service, pytest.raises(RequestFailed):
        put_comment(of(service), MARKER, MARKER)


@SERVICES
def test_the_token_is_not_in_what_a_traceback_shows(of: Callable[[Forge], Comments]) -> None:
    with forge() as service:
        assert "secret" not in repr(of(service))
