"""Finds secrets by the name that they are assigned to (variable, field, option or tag), and where such a value ends."""

from __future__ import annotations

import math
import re
from collections import Counter

from rn50_advisor.advisor.store.secrets.secret_names import Secrecy, is_plain, secrecy

Spans = list[tuple[int, int]]

QUOTE = r"(?:'\\''|\\*[\"'`]|&quot;|&#3[49];)"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>-{{0,2}}[^\W\d][\w.-]{{0,100}})(?:{QUOTE}\]?|\])?"
    r"(?:\s{0,8}:\s{0,2}(?i:str|bytes|SecretStr|Optional\[str\]|str ?\| ?None)(?=\s{0,2}=))?"
    r"(?P<sign>[ \t\xa0]{0,8}(?:=>|:=|\+=|->|===?|!=|=|::?)\s{0,8})"
)
_PAIR = re.compile(
    r"[bBrRuUfF]{0,2}(?P<open>'\\''|\\*[\"'])(?P<name>-{0,2}[^\W\d][\w.-]{0,100})(?P=open)\s{0,8},\s{0,8}"
    r"(?=[bBrRuUfF]{0,2}(?:'\\''|\\*[\"']))"
)
_OPTION = re.compile(
    rf"(?<![\w-])(?P<name>--?[A-Za-z][\w.-]{{0,100}}){QUOTE}?(?P<sign>\s{{1,8}}|,\s{{0,8}})(?!--?[A-Za-z])"
)
_NAMED = re.compile(
    rf"\b(?:name|key){QUOTE}?\s{{0,4}}[=:]\s{{0,4}}{QUOTE}?(?P<name>[^\W\d][\w.-]{{0,100}}){QUOTE}?[,\s]{{1,40}}{QUOTE}?value{QUOTE}?"
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
_BITS_PER_CHARACTER = 3.0
_DIGITS_LEAST = 3


def looks_random(word: str) -> bool:
    """True if letters and digits are mixed evenly, unlike in a name, a path or a sentence."""
    digits = sum(c.isdigit() for c in word)
    letters = [c for c in word if c.isalpha()]
    if digits < _DIGITS_LEAST or not letters:
        return False
    if "/" in word and ("".join(letters).islower() or "".join(letters).isupper()):
        return False  # a path
    counts = Counter(word).values()
    return -sum(n / len(word) * math.log2(n / len(word)) for n in counts) >= _BITS_PER_CHARACTER


def assigned_spans(text: str) -> Spans:
    """Spans of `token=S`, `"token": "S"`, `Authorization: Bearer S`, `?sig=S`, `("token", "S")`.

    Also searches values that are no secret themselves: `env=TOKEN=S`.
    """
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
    """True for two adjacent names, for example of columns: `["token", "label"]`."""
    return not name.startswith("-") and value.replace("_", "").isalpha() and value.islower()


def _value(text: str, at: int, name: str) -> tuple[int, int]:
    """Returns the span of the assigned value."""
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
    """Returns the span inside the brackets; empty if it holds only numbers and plain words."""
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
    if more and end == run.end() and "(" not in run[0] and not run[0].endswith("="):  # a shell joins adjacent strings
        end = _quoted(text, more.end(), more[1])[1]
    if secrecy(name) is Secrecy.CERTAIN and text[max(0, at - 2) : at] == ": " and _starts_line(text, at):
        rest = _REST.match(text, at)
        end = max(end, at + len((rest[0] if rest else "").split(" #")[0].rstrip()))
    return end


def _trimmed(run: str) -> str:
    """Strips trailing punctuation, and closing brackets that were opened before the run."""
    end = len(run)
    while (
        end > 1
        and run[end - 1] in ")]}>:.,|\\"
        and not (run[end - 1] in _OPENERS and _OPENERS[run[end - 1]] in run[:end])
    ):
        end -= 1
    return run[:end]


def _starts_line(text: str, at: int) -> bool:
    """True if only a name precedes it on its line: `Password: correct horse`."""
    return bool(re.fullmatch(r"[\s>-]*[\w.-]+\s*:\s+", text[text.rfind("\n", 0, at) + 1 : at][-200:]))


def _quoted(text: str, begin: int, quote: str) -> tuple[int, int]:
    """Returns the span up to the closing quote; up to the end of the line if there is none."""
    at = begin
    limit = min(len(text), begin + _VALUE_MAX)
    while (end := text.find(quote, at, limit)) >= 0:
        slashes = end - len(text[begin:end].rstrip("\\")) - begin
        if (not quote.startswith("\\") and slashes % 2 == 0) or (quote.startswith("\\") and slashes == 0):
            return begin, end
        at = end + 1
    line = text.find("\n", begin, limit)
    return begin, line if line >= 0 else limit


def option_spans(text: str) -> Spans:
    """Spans of `--token S`, also in a printed list: `['--token', 'S']`."""
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


def tag_spans(text: str) -> Spans:
    if "</" not in text:
        return []
    return [
        match.span("value")
        for match in _TAG.finditer(text)
        if (found := secrecy(match["name"])) is not Secrecy.NONE and not is_plain(match["value"], found)
    ]
