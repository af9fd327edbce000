"""Sends JSON to a web service: bounded in time and size, follows no redirect, and no message of it holds an address or a token."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rn50_advisor.advisor.model.visible_text import on_one_line
from rn50_advisor.advisor.outlets.timed_call import TimedCalls

ANSWER_BYTES = 8 << 20  # a page of a hundred comments may have 6.5 MB
LONGEST_S = 20.0
_EXPLANATION_CHARS = 200
_UNANSWERED_MAX = 8


class RequestFailed(Exception):
    """The service could not be asked, or refused; `status` is its answer, None where it gave none.

    `may_have_arrived`: the request was sent, and nobody knows what became of it.
    """

    def __init__(self, message: str, status: int | None = None, *, may_have_arrived: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    status: int
    content: Any  # decoded JSON; None: it is none


_in_time = TimedCalls(_UNANSWERED_MAX)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(
    method: str, url: str, content: Any = None, *, headers: Mapping[str, str], longest_s: float = LONGEST_S
) -> JsonAnswer:
    """Sends a request and waits for the answer, `longest_s` at most. Raises RequestFailed."""
    try:
        return _in_time(lambda: _asked(method, url, content, headers, longest_s), longest_s)
    except TimeoutError:
        raise RequestFailed(f"no answer within {longest_s:g} s", may_have_arrived=True) from None


def _asked(method: str, url: str, content: Any, headers: Mapping[str, str], longest_s: float) -> JsonAnswer:
    sent = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "rn50-advisor", **headers}
    data = None if content is None else json.dumps(content).encode()
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        request = urllib.request.Request(url, data, sent, method=method)
        if request.type not in ("http", "https"):
            raise RequestFailed("the address does not begin with http:// or https://")
        with opener.open(request, timeout=longest_s) as response:
            return JsonAnswer(response.status, _decoded(response.read(ANSWER_BYTES)))
    except urllib.error.HTTPError as error:
        with error:
            raise RequestFailed(f"HTTP {error.code}{_explanation(error)}", error.code) from None
    except urllib.error.URLError as error:
        raise RequestFailed(_reason(error.reason)) from None
    except OSError as error:  # while it waited for the answer
        raise RequestFailed(_reason(error), may_have_arrived=True) from None
    except (ValueError, http.client.InvalidURL) as error:  # their words may hold the address
        raise RequestFailed(f"the request could not be made ({type(error).__name__})") from None
    except http.client.HTTPException as error:
        raise RequestFailed(f"no answer that is HTTP ({type(error).__name__})", may_have_arrived=True) from None


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):  # a hundred thousand brackets
        return None


def _explanation(error: urllib.error.HTTPError) -> str:
    """`: Resource not accessible by integration`, if the answer says so."""
    try:
        said = _decoded(error.read(ANSWER_BYTES))
    except (OSError, http.client.HTTPException):
        return ""
    message = said.get("message") or said.get("error") if isinstance(said, dict) else None
    return f": {on_one_line(message)[:_EXPLANATION_CHARS]}" if isinstance(message, str) else ""


def _reason(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, OSError):
        return reason.strerror or type(reason).__name__
    return type(reason).__name__ if isinstance(reason, Exception) else "no connection"
