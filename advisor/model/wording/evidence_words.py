"""Wording of evidence as part of a sentence."""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.wording.quantities import metric_words, quantity, share

_BARE_SHARE = re.compile(r"[\d.]+ % of (?:a [^,;]* step|the step|the time)(?:[,;]|$)")  # of what, the metric says


def sentence(e: Evidence) -> str:
    """The note where no column names the metric: `input wait: 36 % of a 997 ms step`."""
    bare = e.form == "alone" and _BARE_SHARE.match(e.note)
    return f"{metric_words(e.metric)}: {e.note}" if bare else phrase(e)


def begun(words: str) -> str:
    """With a capital, as a sentence begins, unless it begins with a name of the user's: `train_step`, `.item()`."""
    first = words.partition(" ")[0].rstrip(":,;")
    return words[:1].upper() + words[1:] if first.isalpha() else words


def phrase(e: Evidence) -> str:
    """Returns a note for use in a sentence, with its value in front unless the note needs none; a table has a column for the value."""
    if e.form == "alone" or e.value in (None, ""):
        return e.note
    return f"{_amount(e)} {e.note}" if e.form == "continues" else f"{_amount(e)}: {e.note}"


def _amount(e: Evidence) -> str:
    if e.value is None or isinstance(e.value, str):
        return e.value or ""
    unit = e.unit.removesuffix("s") if e.value == 1.0 and e.unit.isalpha() and len(e.unit) > len("GPU") else e.unit
    return share(e.value) if unit in ("", "share") and 0.0 <= e.value <= 1.0 else quantity(e.value, unit)
