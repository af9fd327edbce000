"""Wording of predicted gains: the likely value first, then its range."""

from __future__ import annotations

from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.wording import quantities
from rn50_advisor.advisor.model.wording.quantities import seconds_range, speedup_range

# shown for a wide range: the cheapest way to learn the gain is to try
TRY_IT = "a wide range: try the fix, compare the runs"


def likely(saving: Saving, about: str = "about ") -> str:
    """`about 1.5×`; empty if the range is too wide for a likely value, or if no gain was predicted."""
    if saving.likely is None or saving.is_vague or not saving.is_gain:
        return ""
    return about + quantities.speedup(saving.likely, saving.speedup)


def speedup(saving: Saving, about: str = "about ", faster: str = "") -> str:
    """`about 1.5× (1.3–1.7×)`, or only the range."""
    value, spread = likely(saving, about), speedup_range(saving.speedup)
    return f"{value}{faster} ({spread})" if value else f"{spread}{faster}"


def gain(saving: Saving, room: int | None = None) -> str:
    """`about 1.5× faster (1.3–1.7×), saves 280–330 ms per step`; empty if there is no gain.

    `room`: the columns that it may take; parts that do not fit whole are left out, the speed-up never.
    """
    parts = []
    if saving.is_gain:
        parts.append(speedup(saving, faster=" faster"))
    low_s, high_s = saving.seconds_per_step
    if high_s > 0:
        saved = seconds_range((low_s, high_s)) if low_s >= 0 else f"up to {seconds_range((high_s, high_s))}"
        parts.append(f"saves {saved} per step")
    if saving.is_gain and saving.is_vague:
        parts.append(TRY_IT)
    while room is not None and len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return ", ".join(parts)
