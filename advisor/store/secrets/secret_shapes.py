"""Finds credentials by their own shape: gitleaks' rules as data, and a few more that training jobs use.

Why data and not a library: detect-secrets (1.5.0, May 2024) knows about twenty shapes but none of Hugging Face, Anthropic or Azure
signatures, takes 0.1 s to import and brings `requests` and six more packages. gitleaks is maintained, MIT-licensed, and its 222 rules
are plain patterns.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

_DATA = "secret_shapes.tsv"
# Every secret of these shapes has at least 12 such characters in a row: most output lines of a training need no further search.
_LONG = re.compile(r"[\w.=+/~:|%-]{12,}")
# Open-ended where gitleaks requires an exact length, so that truncated secrets and new lengths are masked too.
_OWN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl[a-z]{2,6}-[\w-]{16,}"
    r"|sk-[\w-]{16,}|[sr]k_(?:live|test|prod)_\w{8,}|whsec_[\w+/=-]{16,}|xox[a-z](?:\.xox[a-z])?-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,}|npm_[A-Za-z0-9]{16,}|pypi-Ag[\w-]{16,}"
    r"|SG\.[\w-]{8,}\.[\w-]{8,}|dapi[0-9a-f]{24,}(?:-\d)?|dop_v1_[0-9a-f]{16,}|wandb_v1_\w{16,}|gsk_\w{20,}|r8_[A-Za-z0-9]{20,}"
    r"|nvapi-[\w-]{20,}|lsv2_[a-z]{2}_[\w-]{16,}|pplx-[A-Za-z0-9]{20,}|tvly-[\w-]{16,}|SK[0-9a-f]{32}|glsa_\w{20,}|AGE-SECRET-KEY-\w+"
    r"|\d{6,12}:AA[\w-]{25,}|[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{25,}|[\w~.]{3}\dQ~[\w~.-]{30,}|[A-Za-z0-9+/]{86}==|eyJ[\w+/-]{16,}={0,2}(?:\.[\w-]*){0,4})"
    r"|discord(?:app)?\.com/api/webhooks/(?P<webhook>\d+/[\w-]+)"
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/(?P<slack>[\w/+-]+)"
)


def shape_spans(text: str) -> list[tuple[int, int]]:
    """Spans of credentials of a known shape."""
    if not _LONG.search(text):
        return []
    spans = [match.span(match.lastgroup or 0) for match in _OWN.finditer(text)]
    pattern, rules = _rules()
    lowered = text.lower()
    hit = {number for match in pattern.finditer(lowered) for number in rules[match[1]]}
    for number in sorted(hit):
        for match in _compiled(number).finditer(text):
            spans += [match.span(group) for group in range(1, match.re.groups + 1) if match[group]] or [match.span()]
    return spans


@functools.cache
def _rows() -> list[list[str]]:
    text = resources.files(__package__).joinpath(_DATA).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


@functools.cache
def _rules() -> tuple[re.Pattern[str], dict[str, frozenset[int]]]:
    """Returns one pattern for the keywords of all rules, and the rules by keyword.

    The pattern is a tree of letters, which takes a fifth of the time of 200 searches. A keyword that begins with another keyword is
    left out: the shorter one stands for the rules of both.
    """
    words: dict[str, set[int]] = {}
    for number, (_, keywords, _pattern) in enumerate(_rows()):
        for keyword in keywords.split():
            words.setdefault(keyword, set()).add(number)
    roots = sorted(word for word in words if not any(word[:n] in words for n in range(1, len(word))))
    rules = {
        root: frozenset(number for word, numbers in words.items() if word.startswith(root) for number in numbers)
        for root in roots
    }
    return re.compile(f"(?=({_tree(roots)}))"), rules


def _tree(words: list[str]) -> str:
    """Returns a pattern for these words; none of them may begin with another."""
    if words == [""]:
        return ""
    branches: dict[str, list[str]] = {}
    for word in words:
        branches.setdefault(word[0], []).append(word[1:])
    return "(?:" + "|".join(re.escape(letter) + _tree(rest) for letter, rest in branches.items()) + ")"


@functools.cache
def _compiled(number: int) -> re.Pattern[str]:
    return re.compile(_rows()[number][2])
