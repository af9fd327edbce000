"""Posts a line to a webhook when a run hangs, dies or becomes slower: to Slack, to Teams, or as JSON to anything else.

The address of a webhook is its password: nothing here shows more of it than the host.
"""

from __future__ import annotations

import base64
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rn50_advisor.advisor.outlets.endpoint import parse_endpoint
from rn50_advisor.advisor.outlets.outlet import NotDelivered, Outlet, RunReading

if TYPE_CHECKING:
    from rn50_advisor.advisor.outlets.json_requests import RequestFailed

OPTION = "--notify"
FORMS = ("slack", "teams", "json")
_SLACK_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")
_TEAMS_HOSTS = ("logic.azure.com", "logic.azure.us", "api.powerplatform.com", "webhook.office.com")
_ANSWERS_WITHIN_S = 2.5  # shorter than the wait for the last reading
_REFUSALS_MAX = 20  # requests in a row; an address that refuses as often has been withdrawn


class Webhook(Outlet):
    name = "notify"

    def __init__(self, url: str) -> None:
        """`url`: the webhook's address; `slack+`, `teams+` or `json+` before it chooses the form. Raises UsageError."""
        form, _, plain = url.partition("+")
        chosen = form in FORMS
        endpoint = parse_endpoint(plain if chosen else url, OPTION)
        self.form = form if chosen else form_of(endpoint.url)
        self.place = endpoint.host
        self.secrets = (url.partition("://")[2],)
        self._url = endpoint.url
        self._headers = {}
        if endpoint.login is not None:
            word = base64.b64encode(":".join(endpoint.login).encode()).decode()
            self._headers["Authorization"] = f"Basic {word}"
        self._folder = ""
        self._refusals = 0
        self._book: Any = None

    def open(self, run: Path) -> None:
        from rn50_advisor.advisor.outlets.notices import NoticeBook  # noqa: PLC0415 - not where the job is started

        self._folder = str(run.absolute())  # whoever reads it is elsewhere
        self._book = NoticeBook()

    def deliver(self, reading: RunReading) -> None:
        from rn50_advisor.advisor.outlets.json_requests import RequestFailed, ask  # noqa: PLC0415
        from rn50_advisor.advisor.outlets.notices import document  # noqa: PLC0415

        for notice in self._book.news(reading):
            if self._refusals >= _REFUSALS_MAX:
                return
            content = body(document(notice, reading, self._folder), self.form)
            try:
                ask("POST", self._url, content, headers=self._headers, longest_s=_ANSWERS_WITHIN_S)
            except RequestFailed as error:
                self._refusals += 1
                if error.may_have_arrived:  # once too few is better than twice
                    self._book.told(notice, reading)
                raise NotDelivered(_refusal(error)) from None
            self._refusals = 0
            self._book.told(notice, reading)


def _refusal(error: RequestFailed) -> str:
    """Without the service's own words: many repeat the path that was asked for (`Cannot POST /...`), here a password."""
    if error.status is None:
        return error.message
    known = error.status in set(HTTPStatus)
    return f"HTTP {error.status} {HTTPStatus(error.status).phrase}" if known else f"HTTP {error.status}"


def form_of(url: str) -> str:
    """The form that the host of this address takes."""
    host = (urlsplit(url).hostname or "").lower()
    if host in _SLACK_HOSTS:
        return "slack"
    return "teams" if any(host == known or host.endswith(f".{known}") for known in _TEAMS_HOSTS) else "json"


def body(notice: dict[str, Any], form: str) -> dict[str, Any]:
    """The notice as the service takes it. No text of a job becomes a mention, a link or formatting."""
    text = notice["text"]
    if form == "slack":
        for sign, word in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(sign, word)
        return {"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
    if form == "teams":
        # A TextBlock reads Markdown, a TextRun none. Workflows take Adaptive Cards alone.
        runs = [{"type": "TextRun", "text": text}]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "fallbackText": text,
            "body": [{"type": "RichTextBlock", "inlines": runs}],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}
    return notice
