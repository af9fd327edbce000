"""Masks credentials in environment variables, command lines and text before they are stored or shown. In doubt it masks.

Every string of the job's passes here before it is written (by the writer of the run, the relay of its output, the frames to other nodes)
and again before a bundle leaves. First the shapes that a well-kept collection knows (`secret_shapes`), then what a name, an option, a
header or a URL says of the value beside it (`secret_names`), and what stands in secret variables of our own environment,
which is the job's.
The work is bounded by the length of the text: no pattern here looks further than a few thousand characters.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import math
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rn50_advisor.advisor.store.secrets.secret_names import Secrecy, is_plain, secrecy
from rn50_advisor.advisor.store.secrets.secret_shapes import shape_spans

MASK = "***"
Spans = list[tuple[int, int]]

# Variables that explain how fast a job runs. Everything else stays with the job.
KEPT_PREFIXES = (
    "OMP_",
    "GOMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NUMEXPR_",
    "MALLOC_",
    "NCCL_",
    "GLOO_",
    "TORCH",
    "PYTORCH",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "GROUP_",
    "ROLE_",
    "NODE_RANK",
    "MASTER_",
    "SLURM_",
    "OMPI_COMM_WORLD_",
    "UCX_",
    "FI_",
    "TOKENIZERS_",
    "ACCELERATE_",
    "HF_",
)
KEPT_NAMES = frozenset({"LD_PRELOAD", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONMALLOC"})
# Environment variables whose name contains one of these are masked: few useful names do, so a false alarm costs little.
_SECRET_PARTS = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "SESSION",
    "PRIVATE",
    "DSN",
    "JWT",
)
_NO_SECRETS = ("TOKENIZERS_",)
_INHERITED_CHARACTERS_MIN = 8  # of a value that is looked for anywhere: a shorter one stands in other words too

# Without one of these in a text, in lower case, nothing but shapes is looked for.
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
_QUOTE = r"(?:'\\''|\\*[\"'`]|&quot;|&#3[49];)"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>-{{0,2}}[^\W\d][\w.-]{{0,100}})(?:{_QUOTE}\]?|\])?"
    r"(?:\s{0,8}:\s{0,2}(?i:str|bytes|SecretStr|Optional\[str\]|str ?\| ?None)(?=\s{0,2}=))?"
    r"(?P<sign>[ \t\xa0]{0,8}(?:=>|:=|\+=|->|===?|!=|=|::?)\s{0,8})"
)
_PAIR = re.compile(
    r"[bBrRuUfF]{0,2}(?P<open>'\\''|\\*[\"'])(?P<name>-{0,2}[^\W\d][\w.-]{0,100})(?P=open)\s{0,8},\s{0,8}"
    r"(?=[bBrRuUfF]{0,2}(?:'\\''|\\*[\"']))"
)
_OPTION = re.compile(
    rf"(?<![\w-])(?P<name>--?[A-Za-z][\w.-]{{0,100}}){_QUOTE}?(?P<sign>\s{{1,8}}|,\s{{0,8}})(?!--?[A-Za-z])"
)
_NAMED = re.compile(
    rf"\b(?:name|key){_QUOTE}?\s{{0,4}}[=:]\s{{0,4}}{_QUOTE}?(?P<name>[^\W\d][\w.-]{{0,100}}){_QUOTE}?[,\s]{{1,40}}{_QUOTE}?value{_QUOTE}?"
    r"\s{0,4}[=:]\s{0,4}",
    re.IGNORECASE,
)
_TAG = re.compile(r"<(?P<name>[A-Za-z][\w:.-]{0,100})(?:\s[^<>\n]{0,200})?>(?P<value>[^<\n]{1,4096})</")
_QUERY_NAMES = re.compile(r"(?i)sig|signature|code|key|auth|hmac|sid|pw|pass|jwt|sas|private")
_OPENS = re.compile(r"[bBrRuUfF]{0,2}('\\''|\\*(?:\"\"\"|'''|[\"'`])|&quot;|&#3[49];)")
_VALUE_MAX = 8192
_LIST_MAX = 400
_RUN = re.compile(r"(?:\\ |[^\s\"'`;&,<>\\]|\\(?![\\\"'`])|[;&,](?!\s|$|[;&,]|[\w.-]{1,80}[\"']?[=:]))+")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_OPENERS = {closer: opener for opener, closer in _CLOSERS.items()}
_WORD_OF_A_LIST = re.compile(r"[\"'`]|(?=[A-Za-z_]{0,30}\d)(?=\d{0,30}[A-Za-z])\w{6,}")
_LONG_WORD = re.compile(r"\w{16,}")
_CALL = re.compile(
    r"(?:[A-Za-z_]\w{0,40}\.){0,4}(?!getenv|get|getpass|environ|input|next|pop|open|read)[A-Za-z_]\w{0,40}\(\s{0,4}[bBrRuUfF]{0,2}(\\*[\"'])"
)
_SCHEME = re.compile(
    r"(?i)(?:basic|bearer|token|digest|apikey|api-key|negotiate|oauth|key|hmac|aws4-hmac-sha256)(?:[ \t]+|%20)(?=\S)"
)
_LONG_SCHEME = re.compile(r"(?i)digest|oauth|aws4|hmac")
_REST = re.compile(r"[^\n\"']{0,8192}")
_LINE = re.compile(r"[^\n]{0,8192}")
_BLOCK = re.compile(
    r"[|>][+-]?[ \t]*\n(?P<block>(?:(?P<indent>[ \t]+)\S[^\n]*\n?)(?:(?P=indent)[^\n]*\n?|[ \t]*\n){0,200})"
)

_AUTHORITY = re.compile(r"(?i)[a-z][a-z0-9+.-]{0,30}://(?P<user>[^\s/@\"'<>`\\]{0,4096}@)(?=[\w\[%.*])")
# With a slash or an at sign in the password; a port in front of a path is none.
_ODD_AUTHORITY = re.compile(
    r"(?i)[a-z][a-z0-9+.-]{0,30}://(?P<user>[^\s/:@\"'<>?#]{0,200}:(?!\d{1,5}/)[^\s\"'<>?]{1,400}@)(?=[\w\[.-]+(?:[:/?,\"'\s]|$))"
)
_USER_AND_PASSWORD = re.compile(
    r"(?<![\w.%+/-])(?P<user>[\w.%+-]{1,100}:(?!//)[^\s@:'\"]{1,400}@)(?=[\w\[])(?!sha\d+:)"
)
_ORACLE = re.compile(r"(?i)(?:jdbc:oracle:\w+:|\bsqlplus\s+)[\w.-]+(?P<user>/[^\s@]{1,400})@")
_LOGIN = re.compile(
    r"(?<![\w-])(?i:-u|-U|--user|--login|--proxy-user|--proxy-auth|--userpwd|--basic-auth|--http-auth|--basic|--creds|--auth-user)"
    rf"{_QUOTE}?[=,\s]{{1,8}}{_QUOTE}?(?P<user>[^\s:\"'/]{{1,200}}:{_QUOTE}?(?!\d{{1,7}}(?:[\s\"']|$)|//)[^\s\"'`\\]{{1,1000}})"
)
_GLUED = re.compile(r"(?<![\w-])-u(?P<user>[^\s:\"'/-]{1,200}:(?!\d{1,7}(?:[\s\"']|$)|//)[^\s\"'`]{1,1000})")
_PASSWORD_PROGRAMS = re.compile(
    r"sshpass|mysql|mariadb|mongo|docker|podman|helm|htpasswd|\baz\b|7z|\bzip|sqlcmd|redis-cli|\boc\b|smbclient|ncftp|lftp"
)
_SHORT = re.compile(rf"(?<![\w-])-(?:p|P|a){_QUOTE}?(?:[=,\s]{{1,8}}){_QUOTE}?(?P<value>[^\s\"'`-][^\s\"'`]{{0,1000}})")
_SHORT_GLUED = re.compile(r"(?<![\w-])-p[\"']?(?P<value>[^\s\"'`=,:-][^\s\"'`]{3,1000})")
_NO_PASSWORD = re.compile(r"[\d:./,-]*|[a-z_]*|[A-Z_]*|[\w.~-]*/[\w./~-]*|[\w.-]+=.*")
_COMMAND_CHARACTERS_MAX = 300
_OTHER_PROGRAMS = re.compile(r"\b(?:srun|sbatch|salloc|squeue|sinfo|ssh|scp|mkdir|python[\d.]*)\b")
_BEARER = re.compile(r"(?i)\bbearer[ \t]+(?P<value>[^\s\"',;]{6,4096})")
_BASIC = re.compile(r"(?i)\bbasic[ \t]+(?P<value>[\w+/=-]{6,4096})")
_NETRC = re.compile(
    r"(?i)\b(?:login|user)\s+\S{1,200}\s+password\s+(?P<value>\S{1,1000})|\bidentified\s+by\s+(?P<sql>'[^'\n]{1,1000}'|\S{1,1000})"
)
# A word that looks like nothing but a key, after a word that says so: `invalid token 9b1f…`, `/api/token/9b1f…`, `wandb login 9b1f…`.
_SAID = re.compile(
    r"(?i)(?:key|token|secret|password|passphrase|credentials?|login|auth|bearer|jwt|signature|cookie|session)s?[)\]]?"
    r"(?:[ \t]+(?:is|was|of|for|with|value|provided|used|id|string|invalid|given|supplied|as)){0,3}"
    rf"(?:[ \t]*[:=/(]|[ \t]+|[ \t]*\n)[ \t]{{0,4}}{_QUOTE}?(?P<value>[\w+/=~-]{{16,1000}})"
)
_SAID_CHARACTERS_MIN = 16
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# A line of one, where its begin is not in the same text: of base64 alone, as long as they are.
_KEY_LINE = re.compile(
    r"(?m)^(?=[a-z0-9+/]{0,60}[A-Z])(?=[A-Z0-9+/]{0,60}[a-z])(?=[A-Za-z+/]{0,60}\d)[A-Za-z0-9+/]{60,76}={0,2}(?=\r?$)"
)
PEM_CHARACTERS_MAX = 32_768
_BITS_PER_CHARACTER = 3.0
_DIGITS_LEAST = 3

# A text as its reader sees it, where it is written in another way.
_COLOUR = re.compile(r"\x1b\[[\d;:]*m")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPED = re.compile(r"\\(?:u00[0-9A-Fa-f]{2}|x[0-9A-Fa-f]{2}|[nrt\\/\"'])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_View = tuple[str, re.Pattern[str], Callable[[str], str]]
_VIEWS: tuple[_View, ...] = (
    ("\x1b[", _COLOUR, lambda _: ""),
    ("%", _PERCENT, lambda coded: chr(int(coded[1:], 16))),
    ("\\", _ESCAPED, lambda coded: chr(int(coded[-2:], 16)) if len(coded) > 2 else _ESCAPES.get(coded[1], coded[1])),
)
_VIEWS_DEEP = 2
_CACHED_CHARACTERS_MAX = 2000
TEXT_CHARACTERS_MAX = 64 << 10  # of one string that is kept: command lines can have 2 MB, which would take a minute


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables worth keeping, in order of their names; one that looks secret by name or by value is left out."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name in KEPT_NAMES or name.startswith(KEPT_PREFIXES))
        and not _refused(name)
        and redact_text(value) == value
        and redact_text(f"{name}={value}") == f"{name}={value}"
    }


def redact_argv(argv: Iterable[str]) -> list[str]:
    """The command line with the values of secret options, assignments and URLs masked, also where a value is an argument of its own."""
    return list(_together(tuple(argv)))


@functools.lru_cache(1024)
def _together(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments, or lines: what begins in one and ends in another is masked in both."""
    spans = [secret_spans(between.join(texts)) for between in (" ", "\n")]
    masked, first = [], 0
    if sum(map(len, texts)) > TEXT_CHARACTERS_MAX:
        return tuple(redact_text(text) for text in texts)
    for text in texts:
        last = first + len(text)
        own = secret_spans(text)
        shared = [
            (max(begin, first) - first, min(end, last) - first)
            for found in spans
            for begin, end in found
            if begin < last and end > first
        ]
        if any(begin == 0 for begin, _ in shared) and not (own and own[0][0] == 0):
            shared = [(0, len(text))]  # the value of what stands in front, with whatever spaces it has
        masked.append(_masked(text, [*own, *shared]))
        first = last + 1
    return tuple(masked)


def redact_text(text: str) -> str:
    """Any text (a shell command, a line of output) with everything that has the shape of a credential masked; a huge one is cut off."""
    if len(text) <= _CACHED_CHARACTERS_MAX:
        return _redacted_short(text)
    if len(text) <= TEXT_CHARACTERS_MAX:
        return _redacted_long(text)
    end = text.rfind(" ", 0, TEXT_CHARACTERS_MAX) + 1 or TEXT_CHARACTERS_MAX
    return f"{_redacted_long(text[:end])}… ({len(text) - end} characters more)"


@functools.lru_cache(8192)
def _redacted_short(text: str) -> str:
    """The same frames, commands and arguments come again and again."""
    return _masked(text, secret_spans(text))


@functools.lru_cache(32)
def _redacted_long(text: str) -> str:
    return _masked(text, secret_spans(text))


def redact_json(value: Any, *, drop_secret_names: bool = False) -> Any:
    """A JSON value with every string in it redacted; on demand without the entries whose key names a secret."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            redact_text(key) if isinstance(key, str) else key: _redacted_entry(str(key), item, drop_secret_names)
            for key, item in value.items()
            if not (drop_secret_names and secrecy(str(key)) is not Secrecy.NONE)
        }
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return redact_argv(value)
        return [redact_json(item, drop_secret_names=drop_secret_names) for item in value]
    return value


def as_json(value: Any, *, drop_secret_names: bool = False) -> str:
    """JSON text without secrets; ASCII, so that arguments and names of any bytes come back as they were."""
    return json.dumps(
        redact_json(value, drop_secret_names=drop_secret_names), default=lambda other: redact_text(str(other))
    )


def _redacted_entry(name: str, value: Any, drop_secret_names: bool) -> Any:
    found = secrecy(name)
    if found is not Secrecy.NONE and isinstance(value, str):
        return value if is_plain(value, found) else MASK
    if found is Secrecy.CERTAIN and isinstance(value, (list, tuple)):
        return [MASK if isinstance(item, str) else item for item in value]
    return redact_json(value, drop_secret_names=drop_secret_names)


def names_a_secret_word(name: str) -> bool:
    return secrecy(name) is not Secrecy.NONE


def looks_random(word: str) -> bool:
    """Letters and digits mixed, evenly: no name, no path, no sentence."""
    digits = sum(c.isdigit() for c in word)
    letters = [c for c in word if c.isalpha()]
    if digits < _DIGITS_LEAST or not letters:
        return False
    if "/" in word and ("".join(letters).islower() or "".join(letters).isupper()):
        return False  # a path
    counts = Counter(word).values()
    return -sum(n / len(word) * math.log2(n / len(word)) for n in counts) >= _BITS_PER_CHARACTER


def secret_spans(text: str) -> Spans:
    """Where secrets stand, in order and apart from each other."""
    return _merged(_spans(text, _VIEWS, _VIEWS_DEEP))


def _refused(variable: str) -> bool:
    upper = variable.upper()
    return not upper.startswith(_NO_SECRETS) and any(part in upper for part in _SECRET_PARTS)


def masked_between(text: str, spans: Spans, first: int, last: int) -> str:
    """This part of a text; of a secret that began before it, the rest."""
    parts, at = [], first
    for begin, end in _merged(spans):
        if end > first and begin < last:
            parts += [text[at : max(begin, at)], MASK, *_COLOUR.findall(text, max(begin, at), min(end, last))]
            at = min(end, last)
    return "".join([*parts, text[at:last]])


def open_private_key(text: str) -> int | None:
    """Where a private key begins that does not end in this text."""
    begins = [match.start() for match in _PEM.finditer(text)]
    return begins[-1] if begins and not _PEM_END.search(text, begins[-1]) else None


def _masked(text: str, spans: Spans) -> str:
    return masked_between(text, spans, 0, len(text)) if spans else text


def _merged(spans: Spans) -> Spans:
    merged: Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > begin:
            merged.append((begin, end))
    return merged


def _spans(text: str, views: tuple[_View, ...], deep: int) -> Spans:
    spans = [*shape_spans(text), *_pem(text)]
    lowered = text.lower()
    if any(stem in lowered for stem in _STEMS):
        for finder in (_assigned, _options, _tags, _logins, _short_options, _said):
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
    seen, real = [0], [0]  # where in the decoded text a piece begins, and where in this one
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
    """Values of the secret variables that the job was started with: they are masked wherever they turn up."""
    values = {
        value.strip()
        for name, value in os.environ.items()
        if secrecy(name) >= Secrecy.LIKELY and not is_plain(value, secrecy(name))
    }
    return tuple(sorted(value for value in values if len(value) >= _INHERITED_CHARACTERS_MIN and "/" not in value))


def _assigned(text: str) -> Spans:
    """`token=S`, `"token": "S"`, `Authorization: Bearer S`, `?sig=S`, `("token", "S")`; what is no secret may hold one: `env=TOKEN=S`."""
    spans: Spans = []
    for pattern in (_ASSIGNED, _PAIR, _NAMED):
        at = 0
        while match := pattern.search(text, at):
            at = match.end()
            found = _level(text, match)
            if found is Secrecy.NONE:
                continue
            if text[at - 1] == "\n" and text[at : at + 1] not in ("'", '"') and pattern is _ASSIGNED:
                continue  # the next line
            begin, end = _value(text, at, match["name"].lower())
            if end <= begin or (pattern is _PAIR and _is_field(match["name"], text[begin:end])):
                continue
            if not is_plain(text[begin:end], found):
                spans.append((begin, end))
                at = max(at, end)
    return spans


def _level(text: str, match: re.Match[str]) -> Secrecy:
    name, before = match["name"], text[max(0, match.start("name") - 1) : match.start("name")]
    if before == "\\" and name[0] in "nrt":
        name = name[1:]
    found = secrecy(name)
    if before and before in "?&;#" and (found is not Secrecy.NONE or _QUERY_NAMES.fullmatch(name)):
        return Secrecy.CERTAIN if found is Secrecy.CERTAIN else Secrecy.LIKELY
    if name.startswith("-") and found is Secrecy.WEAK:
        return Secrecy.LIKELY
    return found


def _is_field(name: str, value: str) -> bool:
    """Two names beside each other, as of columns: `["token", "label"]`."""
    return not name.startswith("-") and value.replace("_", "").isalpha() and value.islower()


def _value(text: str, at: int, name: str) -> tuple[int, int]:
    """From the first character of what is assigned to behind the last."""
    if block := _BLOCK.match(text, at):
        return block.span("block")
    if opened := _OPENS.match(text, at):
        begin, end = _quoted(text, opened.end(), opened[1])
        scheme = _SCHEME.match(text, begin, end)
        return (scheme.end() if scheme else begin), end
    if text[at : at + 1] in _CLOSERS:
        return _in_brackets(text, at, name)
    if "cookie" in name:
        quoted = text[max(0, at - 120) : at].rstrip(" :=")[: -len(name)][-1:] in ("'", '"')
        rest = (_REST if quoted else _LINE).match(text, at)
        return at, rest.end() if rest else at
    if call := _CALL.match(text, at):
        return _quoted(text, call.end(), call[1])
    scheme = _SCHEME.match(text, at)
    return at, _end_after_scheme(text, scheme) if scheme else _end_of_word(text, at, name)


def _in_brackets(text: str, at: int, name: str) -> tuple[int, int]:
    """Nothing where there are only numbers and plain words."""
    end = text.find(_CLOSERS[text[at]], at, at + _LIST_MAX)
    end = end if end >= 0 else min(len(text), at + _LIST_MAX)
    inside = text[at + 1 : end]
    if secrecy(name) is Secrecy.WEAK:
        held = any(looks_random(word) for word in _LONG_WORD.findall(inside))
    else:
        held = bool(_WORD_OF_A_LIST.search(inside))
    return (at + 1, end) if held else (at, at)


def _end_after_scheme(text: str, scheme: re.Match[str]) -> int:
    if _LONG_SCHEME.match(scheme[0]):
        rest = _REST.match(text, scheme.end())
    elif opened := _OPENS.match(text, scheme.end()):
        return _quoted(text, opened.end(), opened[1])[1]
    else:
        rest = _RUN.match(text, scheme.end())
    return rest.end() if rest else scheme.end()


def _end_of_word(text: str, at: int, name: str) -> int:
    run = _RUN.match(text, at)
    if run is None:
        return at
    end = at + len(_trimmed(run[0]))
    more = _OPENS.match(text, run.end())
    if (
        more and end == run.end() and "(" not in run[0] and not run[0].endswith("=")
    ):  # a shell glues what stands side by side
        end = _quoted(text, more.end(), more[1])[1]
    if secrecy(name) is Secrecy.CERTAIN and text[max(0, at - 2) : at] == ": " and _begins_line(text, at):
        rest = _REST.match(text, at)
        end = max(end, at + len((rest[0] if rest else "").split(" #")[0].rstrip()))
    return end


def _trimmed(run: str) -> str:
    """Without what closes something that was opened in front of it."""
    end = len(run)
    while (
        end > 1
        and run[end - 1] in ")]}>:.,|\\"
        and not (run[end - 1] in _OPENERS and _OPENERS[run[end - 1]] in run[:end])
    ):
        end -= 1
    return run[:end]


def _begins_line(text: str, at: int) -> bool:
    """True if only a name precedes it on its line: `Password: correct horse`."""
    return bool(re.fullmatch(r"[\s>-]*[\w.-]+\s*:\s+", text[text.rfind("\n", 0, at) + 1 : at][-200:]))


def _quoted(text: str, begin: int, quote: str) -> tuple[int, int]:
    """The span between quotes; up to the end of the line if they are never closed."""
    at = begin
    limit = min(len(text), begin + _VALUE_MAX)
    while (end := text.find(quote, at, limit)) >= 0:
        slashes = end - len(text[begin:end].rstrip("\\")) - begin
        if (not quote.startswith("\\") and slashes % 2 == 0) or (quote.startswith("\\") and slashes == 0):
            return begin, end
        at = end + 1
    line = text.find("\n", begin, limit)
    return begin, line if line >= 0 else limit


def _options(text: str) -> Spans:
    """`--token S`, also in a list that was printed: `['--token', 'S']`."""
    spans: Spans = []
    at = 0
    while match := _OPTION.search(text, at):
        at = match.end()
        found = secrecy(match["name"])
        if found is Secrecy.NONE:
            continue
        begin, end = _value(text, at, match["name"].lower())
        level = Secrecy.LIKELY if found is Secrecy.WEAK else found
        if end > begin and not is_plain(text[begin:end], level):
            spans.append((begin, end))
            at = max(at, end)
    return spans


def _tags(text: str) -> Spans:
    if "</" not in text:
        return []
    return [
        match.span("value")
        for match in _TAG.finditer(text)
        if (found := secrecy(match["name"])) is not Secrecy.NONE and not is_plain(match["value"], found)
    ]


def _logins(text: str) -> Spans:
    """User and password of a URL or an option."""
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
    for pattern in (_LOGIN, _GLUED):
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
    """The text before it on the same line; arguments may stand on lines of their own."""
    before = text[max(0, at - _COMMAND_CHARACTERS_MAX) : at]
    return before if before.endswith("\n") else before.rpartition("\n")[2]


def _said(text: str) -> Spans:
    """Secrets that words lead to."""
    spans = [match.span("value") for match in _BEARER.finditer(text) if not is_plain(match["value"], Secrecy.WEAK)]
    spans += [match.span("value") for match in _BASIC.finditer(text) if _is_basic(match["value"])]
    spans += [match.span(match.lastgroup or 0) for match in _NETRC.finditer(text)]
    for match in _SAID.finditer(text):
        word = match["value"] if looks_random(match["value"]) else match["value"].partition("/")[0]
        if len(word) >= _SAID_CHARACTERS_MIN and looks_random(word) and not word.startswith("0x"):
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
    """Whole blocks; one that does not end, as far as a key is long."""
    spans: Spans = []
    at = 0
    while begin := _PEM.search(text, at):
        end = _PEM_END.search(text, begin.end(), begin.end() + PEM_CHARACTERS_MAX)
        at = end.end() if end else min(len(text), begin.end() + PEM_CHARACTERS_MAX)
        spans.append((begin.start(), at))
    return spans + [match.span() for match in _KEY_LINE.finditer(text)]
