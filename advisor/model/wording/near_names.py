"""Suggests which known names a misspelt one was meant to be."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SUGGESTED_MAX = 3
_LIKENESS_MIN = 0.6  # `difflib.SequenceMatcher.ratio`; its own default
_NUMBERED = re.compile(r"([a-z]+)[-_ ]?0*(\d+)")


def near_names(word: str, known: Iterable[str]) -> list[str]:
    """The names most like `word`, whatever its case. Names with the same letters and number (`dat3`, `DAT003`) are taken alone."""
    names = list(dict.fromkeys(known))
    asked = word.strip().casefold()
    if number := _NUMBERED.fullmatch(asked):
        same = [
            name
            for name in names
            if (found := _NUMBERED.fullmatch(name.casefold())) and found.groups() == number.groups()
        ]
        if same:
            return same[:_SUGGESTED_MAX]
    likeness = {name: _likeness(asked, name.casefold()) for name in names}
    likely = [name for name in names if likeness[name] >= _LIKENESS_MIN]
    return sorted(likely, key=lambda name: (-likeness[name], names.index(name)))[:_SUGGESTED_MAX]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question for a hint; empty if no name is like `word`."""
    names = near_names(word, known)
    return f"did you mean {', '.join(names)}?" if names else ""


def _likeness(asked: str, name: str) -> float:
    if len(asked) > 2 * len(name) + 2:  # comparing takes the product of the lengths; such a word is like no name
        return 0.0
    return difflib.SequenceMatcher(None, asked, name).ratio()
