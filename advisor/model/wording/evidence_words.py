"""Wording of evidence: its quantities, and its note as part of a sentence."""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.wording import quantities
from rn50_advisor.advisor.model.wording.quantities import metric_words

# Notes that say of which whole something is a part, but not what: `36 % of a 997 ms step`, `of a 997 ms step, in the forward pass`.
_BARE = re.compile(r"(?:[\d.]+ % )?of (?:a \S+ \S+ step|the step|the time)(?: in [^,;]*)?(?: so far)?(?:[,;]|$)")
_A_PLACE = re.compile(r"\S+:\d+ in ")
# Beginnings of notes that continue their value without a comma: "45 ms of a 116 ms step".
_CONTINUES = re.compile(
    r"(?:of|in|at|on|by|for|from|per|to|if|after|above|over|between|since|until|with|under|beyond|so far,?) |\("
)
_BEFORE_A_VOWEL = re.compile(r"\ba (?=8|1[18](?:\.\d+)? )")  # rules write "a" before any number: 84 ms, 11 ms, 18.5 ms


def sentence(e: Evidence) -> str:
    """What was measured where no column names the metric: `input wait: 36 % of a 997 ms step`, `rank 1 waits 400 ms`.

    Notes that cannot stand alone have their value and the metric's title in front, whatever their form.
    """
    note = e.note
    bare = _BARE.match(note)
    if e.value in (None, "") or (e.form == "alone" and note and not (bare or _CONTINUES.match(note))):
        return grammatical(f"at {note}" if _A_PLACE.match(note) else note)
    if not note:
        return f"{metric_words(e.metric)} {amount(e, e.value)}"
    if e.form == "continues" and not bare:
        return grammatical(f"{_with_unit(e, e.value)} {note}")
    its_share = e.form == "alone" and bare and note[0].isdigit()  # the note has the value as a share
    return grammatical(f"{metric_words(e.metric)}: {note if its_share else _with_note(amount(e, e.value), note)}")


def in_full(e: Evidence) -> str:
    """`step time: 45.3 ms of a 116 ms step; threshold 6.97 ms`, `loader workers: 0 (threshold 1), by default`."""
    note, value = grammatical(e.note), amount(e, e.value)
    limit = f"threshold {amount(e, e.threshold)}" if e.threshold is not None else ""
    if limit and not _joins(value, note):
        value, limit = f"{value} ({limit})", ""
    return f"{metric_words(e.metric)}: {_with_note(value, note)}" + (f"; {limit}" if limit else "")


def amount(e: Evidence, value: float | str | None) -> str:
    """A value or threshold of this evidence, without a unit that the metric's title ends with: `loader workers  4`."""
    if _is_share(e) or (value == 1.0 and not metric_words(e.metric).endswith(e.unit)):
        return _with_unit(e, value)
    return quantities.amount(value, e.unit, e.metric)


def grammatical(note: str) -> str:
    """`of an 84.1 ms step` for `of a 84.1 ms step`."""
    return _BEFORE_A_VOWEL.sub("an ", note)


def begun(words: str) -> str:
    """With a capital, as a sentence begins, unless it begins with a name of the user's: `train_step`, `.item()`."""
    first = words.partition(" ")[0].rstrip(":,;")
    return words[:1].upper() + words[1:] if first.isalpha() else words


def _with_unit(e: Evidence, value: float | str | None) -> str:
    return quantities.quantity(value, "share" if _is_share(e) else _singular(e.unit) if value == 1.0 else e.unit)


def _is_share(e: Evidence) -> bool:
    """True if the value is a fraction without a unit."""
    if e.unit or isinstance(e.value, str):
        return False
    return e.metric.endswith("_share") or any(x is not None and 0.0 < x < 1.0 for x in (e.value, e.threshold))


def _singular(unit: str) -> str:
    """`worker`, `process`, `GPU`; `s` and `ms` stay."""
    if not unit.isalpha() or len(unit) <= len("GPU"):
        return unit
    return unit.removesuffix("es") if unit.endswith("sses") else unit.removesuffix("s")


def _with_note(value: str, note: str) -> str:
    return value + (" " if _joins(value, note) else ", ") + note if note else value


def _joins(value: str, note: str) -> bool:
    return bool(note) and (value.endswith("×") or _CONTINUES.match(note) is not None)
