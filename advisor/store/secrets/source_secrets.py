"""Masks secrets in Python source so that it stays valid Python with the same lines: only strings and comments change."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from rn50_advisor.advisor.store.secrets.assigned_secrets import looks_random
from rn50_advisor.advisor.store.secrets.masking import MASK, names_a_secret_word, redact_text

# Keys without a name beside them (`login("7f3a…")`): UUIDs and long words of letters and digits.
_WORD = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9+/=]{20,}")
_LOOKED_BACK = 24  # tokens
_DECLARING = ("add_argument", "option", "Option", "DEFINE_string")
_STRING = re.compile(r"(?P<open>[A-Za-z]{0,3}(?P<quote>\"\"\"|'''|\"|'))(?P<inner>.*)(?P=quote)$", re.DOTALL)
_SKIPPED = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)
_MIDDLES = ("FSTRING_MIDDLE", "TSTRING_MIDDLE")  # of Python 3.12 and 3.14


def redact_source(text: str) -> str | None:
    """Masks secrets in source and keeps its lines; None if it is not Python or cannot be masked safely."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    plain = text[len(mark) :]
    try:
        masked = _masked(plain)
        ast.parse(masked)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return mark + masked if masked.count("\n") == plain.count("\n") else None


def _masked(text: str) -> str:
    if "\r" in text.replace("\r\n", "") or any(c in text for c in "\f\v\x1c\x1d\x1e\x85\u2028\u2029"):
        raise ValueError("lines are counted in more than one way")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    parts, done = [], 0
    for at, token in enumerate(tokens):
        new = _new_token(tokens, at)
        if new == token.string:
            continue
        begin, end = (starts[line - 1] + column for line, column in (token.start, token.end))
        if text[begin:end] != token.string:
            raise ValueError("a token is not what stands in the text")  # for example doubled braces in an f-string
        parts += [text[done:begin], new]
        done = end
    return "".join([*parts, text[done:]])


def _new_token(tokens: list[tokenize.TokenInfo], at: int) -> str:
    token = tokens[at]
    kind = tokenize.tok_name[token.type]
    if kind == "STRING":
        return _string(token.string, secret=_named_secret(tokens, at))
    if kind == "COMMENT":
        return _words_masked(token.string)
    if kind in _MIDDLES:
        start = next(i for i in range(at, -1, -1) if tokenize.tok_name[tokens[i].type].endswith("STRING_START"))
        return MASK if _named_secret(tokens, start) else _words_masked(token.string)
    return token.string


def _string(token: str, *, secret: bool) -> str:
    match = _STRING.match(token)
    if match is None:
        return token
    inner = match["inner"]
    masked = MASK if secret and inner else _words_masked(inner)
    if masked == inner:
        return token
    if "f" in match["open"].lower():
        masked = MASK  # masking may have broken an expression in braces
    if not _parses(f"{match['open']}{masked}{match['quote']}"):
        masked = MASK  # masking cut an escape in half
    missing = inner.count("\n") - masked.count("\n")
    filling = "\n" if len(match["quote"]) == 3 else "\\\n"
    return f"{match['open']}{masked}{filling * missing}{match['quote']}"


def _parses(string: str) -> bool:
    try:
        ast.parse(f"({string})")
    except (SyntaxError, ValueError):
        return False
    return True


def _words_masked(text: str) -> str:
    return _WORD.sub(lambda word: MASK if looks_random(word[0]) else word[0], redact_text(text))


def _named_secret(tokens: list[tokenize.TokenInfo], at: int) -> bool:
    """True for `password = "…"`, `key="…"`, `{"token": "…"}`, `environ["API_KEY"] = "…"`, `get("API_KEY", "…")`, an option's default."""
    before = [t.string.strip("\"'") for t in tokens[max(0, at - _LOOKED_BACK) : at] if t.type not in _SKIPPED]
    if len(before) < 2 or before[-1] not in ("=", "==", "!=", ":", ","):
        return False
    name = before[-2]
    if name == "]":
        name = before[-3]
    elif before[-1] == "=" and len(before) > 3 and before[-3] == ":":
        name = before[-4]  # `password: str = "…"`
    if before[-1] == "," and tokens[at - 2].type != tokenize.STRING:
        return False
    if name == "default" and any(word in _DECLARING for word in before):
        return any(names_a_secret_word(word) for word in before if word.startswith("-") or word.isidentifier())
    return names_a_secret_word(name)
