"""Finds the secrets in a text: known shapes (`secret_shapes`), values beside a name, an option, a header or a URL that marks them as
secret, and values of secret variables in our own environment, which is also the job's.

The work is bounded by the length of the text: no pattern here or in `assigned_secrets` looks further than a few thousand characters.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
import re
from bisect import bisect_right
from collections.abc import Callable

from rn50_advisor.advisor.store.secrets.assigned_secrets import (
    QUOTE,
    Spans,
    assigned_spans,
    looks_random,
    option_spans,
    tag_spans,
)
from rn50_advisor.advisor.store.secrets.secret_names import Secrecy, is_plain, secrecy
from rn50_advisor.advisor.store.secrets.secret_shapes import shape_spans

_INHERITED_CHARACTERS_MIN = 8  # shorter values of the environment would also match inside other words
# A text without any of these, in lower case, is searched only for shapes, private keys and values of the environment.
_STEMS = (
    *(
        "key",
        "token",
        "secret",
        "pass",
        "pwd",
        "pw",
        "cred",
        "auth",
        "cookie",
        "sess",
        "bearer",
        "basic",
        "dsn",
        "jwt",
        "sig",
    ),
    *(
        "private",
        "sid",
        "pat",
        "sas",
        "otp",
        "pin",
        "hmac",
        "login",
        "user",
        "-u",
        "-p",
        "@",
        "begin",
        "identified",
        "code",
    ),
)
_AUTHORITY = re.compile(r"(?i)[a-z][a-z0-9+.-]{0,30}://(?P<user>[^\s/@\"'<>`\\]{0,4096}@)(?=[\w\[%.*])")
# The password may contain a slash or an at sign; a port in front of a path is not a password.
_ODD_AUTHORITY = re.compile(
    r"(?i)[a-z][a-z0-9+.-]{0,30}://(?P<user>[^\s/:@\"'<>?#]{0,200}:(?!\d{1,5}/)[^\s\"'<>?]{1,400}@)(?=[\w\[.-]+(?:[:/?,\"'\s]|$))"
)
_USER_AND_PASSWORD = re.compile(
    r"(?<![\w.%+/-])(?P<user>[\w.%+-]{1,100}:(?!//)[^\s@:'\"]{1,400}@)(?=[\w\[])(?!sha\d+:)"
)
_ORACLE = re.compile(r"(?i)(?:jdbc:oracle:\w+:|\bsqlplus\s+)[\w.-]+(?P<user>/[^\s@]{1,400})@")
_LOGIN = re.compile(
    r"(?<![\w-])(?i:-u|-U|--user|--login|--proxy-user|--proxy-auth|--userpwd|--basic-auth|--http-auth|--basic|--creds|--auth-user)"
    rf"{QUOTE}?[=,\s]{{1,8}}{QUOTE}?(?P<user>[^\s:\"'/]{{1,200}}:{QUOTE}?(?!\d{{1,7}}(?:[\s\"']|$)|//)[^\s\"'`\\]{{1,1000}})"
)
_GLUED_OPTION = re.compile(r"(?<![\w-])-u(?P<user>[^\s:\"'/-]{1,200}:(?!\d{1,7}(?:[\s\"']|$)|//)[^\s\"'`]{1,1000})")
_PASSWORD_PROGRAMS = re.compile(
    r"sshpass|mysql|mariadb|mongo|docker|podman|helm|htpasswd|\baz\b|7z|\bzip|sqlcmd|redis-cli|\boc\b|smbclient|ncftp|lftp"
)
_SHORT = re.compile(rf"(?<![\w-])-(?:p|P|a){QUOTE}?(?:[=,\s]{{1,8}}){QUOTE}?(?P<value>[^\s\"'`-][^\s\"'`]{{0,1000}})")
_SHORT_GLUED = re.compile(r"(?<![\w-])-p[\"']?(?P<value>[^\s\"'`=,:-][^\s\"'`]{3,1000})")
_NO_PASSWORD = re.compile(r"[\d:./,-]*|[a-z_]*|[A-Z_]*|[\w.~-]*/[\w./~-]*|[\w.-]+=.*")
_COMMAND_CHARACTERS_MAX = 300
_OTHER_PROGRAMS = re.compile(r"\b(?:srun|sbatch|salloc|squeue|sinfo|ssh|scp|mkdir|python[\d.]*)\b")
_BEARER = re.compile(r"(?i)\bbearer[ \t]+(?P<value>[^\s\"',;]{6,4096})")
_BASIC = re.compile(r"(?i)\bbasic[ \t]+(?P<value>[\w+/=-]{6,4096})")
_NETRC = re.compile(
    r"(?i)\b(?:login|user)\s+\S{1,200}\s+password\s+(?P<value>\S{1,1000})|\bidentified\s+by\s+(?P<sql>'[^'\n]{1,1000}'|\S{1,1000})"
)
# A random-looking word after a word for a secret: `invalid token 9b1f…`, `/api/token/9b1f…`, `wandb login 9b1f…`.
_AFTER_WORD = re.compile(
    r"(?i)(?:key|token|secret|password|passphrase|credentials?|login|auth|bearer|jwt|signature|cookie|session)s?[)\]]?"
    r"(?:[ \t]+(?:is|was|of|for|with|value|provided|used|id|string|invalid|given|supplied|as)){0,3}"
    rf"(?:[ \t]*[:=/(]|[ \t]+|[ \t]*\n)[ \t]{{0,4}}{QUOTE}?(?P<value>[\w+/=~-]{{16,1000}})"
)
_AFTER_WORD_CHARACTERS_MIN = 16
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A line of a private key whose BEGIN line is not in the text: base64 only, of the usual length.
_KEY_LINE = re.compile(
    r"(?m)^(?=[a-z0-9+/]{0,60}[A-Z])(?=[A-Z0-9+/]{0,60}[a-z])(?=[A-Za-z+/]{0,60}\d)[A-Za-z0-9+/]{60,76}={0,2}(?=\r?$)"
)
PEM_CHARACTERS_MAX = 32_768
# Views decode a text as its reader sees it: without colours, with percent codes and backslash escapes resolved.
COLOUR = re.compile(r"\x1b\[[\d;:]*m")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPED = re.compile(r"\\(?:u00[0-9A-Fa-f]{2}|x[0-9A-Fa-f]{2}|[nrt\\/\"'])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_View = tuple[str, re.Pattern[str], Callable[[str], str]]
_VIEWS: tuple[_View, ...] = (
    ("\x1b[", COLOUR, lambda _: ""),
    ("%", _PERCENT, lambda coded: chr(int(coded[1:], 16))),
    ("\\", _ESCAPED, lambda coded: chr(int(coded[-2:], 16)) if len(coded) > 2 else _ESCAPES.get(coded[1], coded[1])),
)
_VIEWS_DEEP = 2


def secret_spans(text: str) -> Spans:
    """Spans of all secrets, in order and without overlaps."""
    return merged_spans(_spans(text, _VIEWS, _VIEWS_DEEP))


def open_private_key(text: str) -> int | None:
    """Start of a private key that does not end in this text; None if there is none."""
    starts = [match.start() for match in _PEM.finditer(text)]
    return starts[-1] if starts and not _PEM_END.search(text, starts[-1]) else None


def merged_spans(spans: Spans) -> Spans:
    apart: Spans = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        elif end > begin:
            apart.append((begin, end))
    return apart


def _spans(text: str, views: tuple[_View, ...], deep: int) -> Spans:
    spans = [*shape_spans(text), *_pem(text)]
    lowered = text.lower()
    if any(stem in lowered for stem in _STEMS):
        for finder in (assigned_spans, option_spans, tag_spans, _logins, _short_options, _after_words):
            spans += finder(text)
    for value in _inherited():
        at = text.find(value)
        while at >= 0:
            spans.append((at, at + len(value)))
            at = text.find(value, at + len(value))
    for view in views:
        mark, pattern, _ = view
        if mark in text and pattern.search(text):
            spans += _seen_through(text, view, deep)
    return spans


def _seen_through(text: str, view: _View, deep: int) -> Spans:
    """Finds secrets in a decoded view, which is decoded again since text may be escaped twice (`%253D`)."""
    _, pattern, decode = view
    parts, at, length = [], 0, 0
    seen, real = [0], [0]  # where a piece begins in the decoded text, and where in this one
    for match in pattern.finditer(text):
        plain, decoded = text[at : match.start()], decode(match[0])
        for piece, begin in ((plain, at), (decoded, match.start())):
            if piece:
                seen.append(length)
                real.append(begin)
                parts.append(piece)
                length += len(piece)
        at = match.end()
        seen.append(length)
        real.append(at)
    plain = "".join([*parts, text[at:]])

    def where(position: int) -> int:
        piece = bisect_right(seen, position) - 1
        return min(real[piece] + position - seen[piece], len(text))

    return [(where(begin), where(end)) for begin, end in _spans(plain, (view, _VIEWS[0]) if deep else (), deep - 1)]


@functools.cache
def _inherited() -> tuple[str, ...]:
    """Values of the secret variables that the job was started with; they are masked wherever they occur."""
    values = {
        value.strip()
        for name, value in os.environ.items()
        if secrecy(name) >= Secrecy.LIKELY and not is_plain(value, secrecy(name))
    }
    return tuple(sorted(value for value in values if len(value) >= _INHERITED_CHARACTERS_MIN and "/" not in value))


def _logins(text: str) -> Spans:
    """Spans of user and password in URLs and options."""
    spans: Spans = []
    if "@" in text:
        for match in _AUTHORITY.finditer(text):
            user = match["user"]
            if ":" in user or len(user) > 16:
                spans.append((match.start("user"), match.end("user") - 1))
        spans += [(match.start("user"), match.end("user") - 1) for match in _ODD_AUTHORITY.finditer(text)]
        for match in _USER_AND_PASSWORD.finditer(text):
            password = match["user"].partition(":")[2][:-1]
            if "/" not in password or looks_random(password):  # else a path on another host
                spans.append((match.start("user"), match.end("user") - 1))
        spans += [(match.start("user") + 1, match.end("user")) for match in _ORACLE.finditer(text)]
    for pattern in (_LOGIN, _GLUED_OPTION):
        for match in pattern.finditer(text):
            spans.append((match.start("user") + match["user"].index(":") + 1, match.end("user")))
    return spans


def _short_options(text: str) -> Spans:
    if "-p" not in text and "-P" not in text and "-a" not in text:
        return []
    spans = []
    for match in _SHORT.finditer(text):
        value, command = match["value"], _command_before(text, match.start())
        known = _PASSWORD_PROGRAMS.search(command) and not re.fullmatch(r"[\d:./-]*", value)
        if known or (len(value) >= 6 and not _OTHER_PROGRAMS.search(command) and not _NO_PASSWORD.fullmatch(value)):
            spans.append(match.span("value"))
    for match in _SHORT_GLUED.finditer(text):
        if _PASSWORD_PROGRAMS.search(_command_before(text, match.start())) and not re.fullmatch(
            r"[\d:./]*", match["value"]
        ):
            spans.append(match.span("value"))
    return spans


def _command_before(text: str, at: int) -> str:
    """Returns the text before `at` on the same line; if `at` begins a line, also the lines before, since arguments may have own lines."""
    before = text[max(0, at - _COMMAND_CHARACTERS_MAX) : at]
    return before if before.endswith("\n") else before.rpartition("\n")[2]


def _after_words(text: str) -> Spans:
    """Spans of secrets that follow a word for a secret."""
    spans = [match.span("value") for match in _BEARER.finditer(text) if not is_plain(match["value"], Secrecy.WEAK)]
    spans += [match.span("value") for match in _BASIC.finditer(text) if _is_basic(match["value"])]
    spans += [match.span(match.lastgroup or 0) for match in _NETRC.finditer(text)]
    for match in _AFTER_WORD.finditer(text):
        word = match["value"] if looks_random(match["value"]) else match["value"].partition("/")[0]
        if len(word) >= _AFTER_WORD_CHARACTERS_MIN and looks_random(word) and not word.startswith("0x"):
            spans.append((match.start("value"), match.start("value") + len(word)))
    return spans


def _is_basic(word: str) -> bool:
    try:
        return b":" in base64.b64decode(
            word + "=" * (-len(word) % 4), altchars=b"-_" if "-" in word or "_" in word else None
        )
    except (binascii.Error, ValueError):
        return False


def _pem(text: str) -> Spans:
    """Spans of whole private keys; one without an end is taken to have the maximum length."""
    spans: Spans = []
    at = 0
    while begin := _PEM.search(text, at):
        end = _PEM_END.search(text, begin.end(), begin.end() + PEM_CHARACTERS_MAX)
        at = end.end() if end else min(len(text), begin.end() + PEM_CHARACTERS_MAX)
        spans.append((begin.start(), at))
    return spans + [match.span() for match in _KEY_LINE.finditer(text)]
