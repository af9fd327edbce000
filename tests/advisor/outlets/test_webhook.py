"""Notices on their way: the form of each service, once each, and an address that nothing shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from change_services import dead_url, forge, silent_url
from reading_samples import ended, reading
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets import webhook
from rn50_advisor.advisor.outlets.outlet import NotDelivered
from rn50_advisor.advisor.outlets.webhook import Webhook, body, form_of

PATH = "/repos/o/r/issues/5/comments?sig=SECRET"  # what the stand-in takes a POST at
NOTICE = {"text": "a <!channel> & [b](c) *d*", "event": "hang"}


def opened(url: str, tmp_path: Path) -> Webhook:
    made = Webhook(url)
    made.check()
    made.open(tmp_path / "run")
    return made


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x?sig=y", "teams"),
        ("https://e.environment.api.powerplatform.com/powerautomate/x", "teams"),
        ("https://contoso.webhook.office.com/webhookb2/x", "teams"),
        ("https://chat.example.com/hook", "json"),
        ("https://hooks.slack.com.evil.example/x", "json"),
        ("slack+https://chat.example.com/hook", "slack"),
        ("json+https://hooks.slack.com/services/x", "json"),
    ],
)
def test_the_host_or_a_word_before_it_chooses_the_form(url: str, form: str) -> None:
    assert Webhook(url).form == form


@pytest.mark.parametrize(
    "url", ["", "hooks.slack.com/SECRET", "ftp://h/SECRET", "pager+https://h/SECRET", "https://[SECRET", "slack+"]
)
def test_what_is_no_address_is_refused_before_the_job_starts_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        Webhook(url)
    assert "--notify" in refused.value.message and "SECRET" not in refused.value.message + refused.value.hint


def test_slack_gets_text_without_mentions_and_formatting() -> None:
    made = body(NOTICE, "slack")
    assert made.pop("text") == "a &lt;!channel&gt; &amp; [b](c) *d*"
    assert made == {"mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def test_teams_gets_an_adaptive_card_with_plain_text() -> None:
    (attachment,) = body(NOTICE, "teams")["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert card["body"] == [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": NOTICE["text"]}]}]


def test_anything_else_gets_the_parts_as_json() -> None:
    assert body(NOTICE, "json") == NOTICE and form_of("https://x/") == "json"


@pytest.mark.parametrize("form", ["slack", "teams", "json"])
def test_an_event_is_posted_once_and_again_only_where_it_was_refused(form: str, tmp_path: Path) -> None:
    with forge() as service:
        made = opened(f"{form}+{service.url}{PATH}", tmp_path)
        made.deliver(reading())
        assert service.sent == []
        service.status, service.answer = 500, {"message": f"Cannot POST {PATH}"}
        with pytest.raises(NotDelivered) as failed:
            made.deliver(ended(3))
        assert failed.value.message == "HTTP 500 Internal Server Error"
        service.status = 202
        for _ in range(2):
            made.deliver(ended(3))
        assert (
            len(service.sent) == 2
            and "exit code 3" in str(service.sent[1])
            and str(tmp_path / "run") in str(service.sent[1])
        )


def test_a_login_is_sent_as_a_header(tmp_path: Path) -> None:
    with forge(status=200) as service:
        opened(service.url.replace("//", "//me:pass@") + PATH, tmp_path).deliver(ended(3))
        assert service.tokens == ["Basic bWU6cGFzcw=="] and "pass" not in str(service.asked)


def test_an_endpoint_that_never_answers_is_given_up_and_asked_no_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "_ANSWERS_WITHIN_S", 0.1)
    with silent_url() as url:
        made = opened(f"{url}{PATH}", tmp_path)
        with pytest.raises(NotDelivered, match="no answer"):
            made.deliver(ended(3))
        made.deliver(ended(3))  # it may have arrived


def test_an_address_that_refuses_always_is_given_up(tmp_path: Path) -> None:
    made = opened(f"{dead_url()}{PATH}", tmp_path)
    for _ in range(webhook._REFUSALS_MAX):
        with pytest.raises(NotDelivered, match="Connection refused"):
            made.deliver(ended(3))
    made.deliver(ended(3))


def test_only_the_host_is_shown(tmp_path: Path) -> None:
    made: Any = opened("https://me:SECRET1@hooks.slack.com:444/services/SECRET2?SECRET3", tmp_path)
    assert made.place == "https://hooks.slack.com:444"
    assert made.secrets == ("me:SECRET1@hooks.slack.com:444/services/SECRET2?SECRET3",)
