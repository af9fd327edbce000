"""Requests to services that answer, refuse, redirect, or never answer: one bounded error, without address and token."""

from __future__ import annotations

import pytest

from change_services import dead_url, forge, silent_url
from rn50_advisor.advisor.outlets.json_requests import RequestFailed, _decoded, ask

HEADERS = {"Authorization": "Bearer ghs_verysecret"}


def failure(url: str, longest_s: float = 5.0) -> RequestFailed:
    with pytest.raises(RequestFailed) as raised:
        ask("POST", f"{url}/services/T0/SECRETPATH", {"a": 1}, headers=HEADERS, longest_s=longest_s)
    assert "SECRETPATH" not in raised.value.message and "verysecret" not in raised.value.message
    return raised.value


def test_json_goes_out_and_comes_back() -> None:
    with forge() as service:
        answer = ask("POST", f"{service.url}/repos/o/r/issues/5/comments", {"body": "text"}, headers=HEADERS)
        assert (answer.status, answer.content["body"]) == (201, "text")
        assert service.tokens == ["Bearer ghs_verysecret"]


def test_a_refusal_says_the_status_and_the_services_own_words() -> None:
    with forge(status=403, answer={"message": "Resource not accessible by integration"}) as service:
        refused = failure(service.url)
    assert not refused.may_have_arrived
    assert (refused.status, refused.message) == (403, "HTTP 403: Resource not accessible by integration")


def test_a_redirect_takes_the_token_nowhere() -> None:
    with forge() as other, forge(status=302) as service:
        service.location = f"{other.url}/stolen"
        assert failure(service.url).status == 302
        assert other.asked == []


def test_a_dead_service_is_one_line() -> None:
    dead = failure(dead_url())
    assert dead.message == "Connection refused" and not dead.may_have_arrived


@pytest.mark.parametrize("drips", [False, True])
def test_a_service_that_never_answers_is_waited_for_no_longer_than_allowed(drips: bool) -> None:
    with silent_url(drips=drips) as url:
        silent = failure(url, 0.2)
        assert "no answer" in silent.message and silent.may_have_arrived


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "hooks.slack.com", "http://", "http://a b/\n", "ftp://x", "https://[::1"]
)
def test_what_is_no_address_is_refused_in_words_of_our_own(url: str) -> None:
    assert failure(url).status is None


def test_an_answer_of_brackets_is_none_that_is_json() -> None:
    assert _decoded(b"[" * 100_000) is None
