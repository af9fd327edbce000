"""Judges whether the value of a variable, an option or a field is a secret: by the name, and by the value itself."""

from __future__ import annotations

import functools
import re
from enum import IntEnum


class Secrecy(IntEnum):
    NONE = 0
    WEAK = 1  # `key`, `auth`, `session`: harmless things have these names too, so plain words and numbers stay
    LIKELY = 2  # `token`, `api_key`: only numbers stay
    CERTAIN = 3  # `password`


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CERTAIN = frozenset(
    (
        *("password", "passwords", "passwd", "passphrase", "passcode", "passwort", "pw", "pwd", "userpwd", "userpass"),
        *("secret", "secrets", "credential", "credentials", "creds", "apikey", "dsn", "jwt", "pgpassword"),
        *("authorization", "bearer", "cookie", "cookies"),
    )
)
_LIKELY = frozenset(("token", "pass", "auths"))
_WEAK = frozenset(
    (
        "key",
        "keys",
        "tokens",
        "auth",
        "session",
        "private",
        "sig",
        "signature",
        "sid",
        "pat",
        "sas",
        "pin",
        "otp",
        "hmac",
    )
)
# Compound words: `accountkey`, `authtoken`, `dbpassword`, `JSESSIONID`.
_GROWN_CERTAIN = ("password", "passwd", "passphrase", "secret", "apikey", "credentials")
_GROWN_LIKELY = re.compile(
    r".*(?:token|(?:access|account|secret|shared|private|auth|signing|master|encryption|ssh|storage|license|deploy|service)key|sess(?:ion)?id)"
)
_GROWN_WEAK = re.compile(r"(?!(?:mon|don|tur|hot|whis|joc|hoc)key).+key")
# Last words of names that are a property of a secret (`token_len`) or something else (`key_padding`).
_ABOUT = frozenset(
    (
        *(
            "file",
            "files",
            "path",
            "paths",
            "dir",
            "folder",
            "len",
            "length",
            "size",
            "min",
            "max",
            "num",
            "count",
            "limit",
        ),
        *(
            "ttl",
            "timeout",
            "expiry",
            "expires",
            "policy",
            "type",
            "types",
            "name",
            "names",
            "id",
            "ids",
            "index",
            "idx",
        ),
        *("shape", "dim", "dims", "embedding", "embeddings", "padding", "mask", "proj", "prob", "probs", "rate", "per"),
        *("budget", "usage", "ratio", "loss", "acc", "accuracy", "manager", "provider", "method", "mode", "enabled"),
        *(
            "required",
            "heads",
            "head",
            "layer",
            "layers",
            "dropout",
            "states",
            "format",
            "function",
            "fn",
            "cls",
            "classifier",
        ),
        *("s", "ms", "sec", "second", "seconds", "throughput", "counts", "level", "url", "uri", "endpoint", "host"),
    )
)
_MODEL_WORDS = frozenset(
    (
        *(
            "pad",
            "eos",
            "bos",
            "unk",
            "sep",
            "cls",
            "mask",
            "special",
            "image",
            "video",
            "audio",
            "text",
            "start",
            "end",
        ),
        *(
            "stop",
            "next",
            "last",
            "first",
            "new",
            "prefix",
            "suffix",
            "middle",
            "decoder",
            "forced",
            "additional",
            "vision",
        ),
        *(
            "sort",
            "cache",
            "primary",
            "foreign",
            "group",
            "partition",
            "dict",
            "state",
            "map",
            "public",
            "label",
            "target",
        ),
        *(
            "input",
            "output",
            "missing",
            "unexpected",
            "batch",
            "column",
            "metric",
            "loss",
            "feature",
            "prompt",
            "attention",
        ),
        *("query", "value", "model", "param", "parameter", "config", "sample", "data", "dataset", "index", "registry"),
        *(
            "per",
            "forward",
            "second",
            "first",
            "one",
            "single",
            "each",
            "num",
            "max",
            "total",
            "type",
            "lookup",
            "dispatch",
        ),
    )
)
_TRAILING = re.compile(
    r"\d+|prod|production|dev|test|staging|live|values?|val|str|string|b64|base64|raw|plain|current|default|main|primary|secondary|header|env"
)
_NOTHING = frozenset(
    (
        *("", "none", "null", "nil", "true", "false", "undefined", "required", "optional", "unset", "empty", "default"),
        *(
            "str",
            "int",
            "bytes",
            "bool",
            "any",
            "string",
            "text",
            "secretstr",
            "~",
            "nan",
            "...",
            "redacted",
            "hidden",
            "|",
            ">",
        ),
    )
)
_NUMBERS = re.compile(r"[\d\s.,+\-eE%/x:]{1,24}")
_PLAIN_WORD = re.compile(r"[A-Za-z_.]{1,24}\(?|[A-Za-z_]\w{0,20}(?:\.(?:[A-Za-z_]\w{0,20}|\d{1,3}))+|lambda\b.*")
_REFERENCE = re.compile(
    r"\$\{\w+(?::?[-=?+])?\}|\$[A-Z_][A-Z0-9_]*|\$\([^)]*\)?|\{\{?[\w.\s\[\]'\"!:]*\}\}?|%[A-Z_]+%"
    r"|%\(\w+\)s|%s|<[\w /|-]+>|\*+|x{3,}|X{3,}|\.{3,}"
    r"|[A-Za-z_]+(?:\.[A-Za-z_]+)*[\[(].*"
    r"|(?:self|cls|args|cfg|config|os|settings|opts?|options|conf|request|kwargs|params|env|environ)(?:\.[A-Za-z_]\w*)+[\[(]?.*",
    re.DOTALL,
)


@functools.lru_cache(4096)
def secrecy(name: str) -> Secrecy:  # noqa: PLR0911 - a list of cases, the first that fits decides
    """Judges a name mostly by its last word: `hf_token` is LIKELY, `pad_token` WEAK, `token_ids` and `key_padding` NONE."""
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and _TRAILING.fullmatch(words[-1]):
        words.pop()
    if not words:
        return Secrecy.NONE
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "id" and before in ("key", "session", "keyid"):
        return Secrecy.LIKELY if "access" in words else Secrecy.WEAK
    if last in _ABOUT:
        return Secrecy.NONE
    if any(word in _CERTAIN or word.endswith(_GROWN_CERTAIN) for word in words):
        return Secrecy.CERTAIN
    if last in _LIKELY or _GROWN_LIKELY.fullmatch(last):
        return Secrecy.WEAK if before in _MODEL_WORDS else Secrecy.LIKELY
    if last in _WEAK:
        compound = before and before not in _MODEL_WORDS and not before.isdigit() and last != "tokens"
        return Secrecy.LIKELY if compound else Secrecy.WEAK
    return Secrecy.WEAK if _GROWN_WEAK.fullmatch(last) else Secrecy.NONE


def is_plain(value: str, secrecy: Secrecy) -> bool:
    """True if a value under a name of this secrecy is no secret: a placeholder, a reference, a number or a plain word."""
    if len(value) > 200:
        return False
    value = value.strip()
    if value.lower() in _NOTHING or value.startswith("***") or _REFERENCE.fullmatch(value):
        return True
    if secrecy is Secrecy.CERTAIN:
        return False
    if _NUMBERS.fullmatch(value) and sum(c.isdigit() for c in value) < 12:
        return True
    return secrecy is Secrecy.WEAK and bool(_PLAIN_WORD.fullmatch(value))
