"""Wording of `triage`, the same in every output."""

from __future__ import annotations

from datetime import datetime, timezone

from rn50_advisor.advisor.model.documents.machine_triage import (
    UNIX_SECONDS,
    Band,
    Check,
    CheckState,
    Triage,
    TriageState,
)
from rn50_advisor.advisor.model.wording import quantities as fmt

# glyph and word always go together, as in the report
VERDICT_WORDS: dict[TriageState, tuple[str, str]] = {
    "keep": ("✓", "keep this machine"),
    "fix": ("▲", "fix a setting"),
    "hand-back": ("✗", "replace this machine"),
}
STATE_WORDS: dict[CheckState, tuple[str, str]] = {
    "ok": ("✓", "ok"),
    "low": ("!", "low"),
    "bad": ("✗", "bad"),
    "unknown": ("?", "unknown"),
}


def verdict(triage: Triage) -> str:
    return " ".join(VERDICT_WORDS[triage.verdict.state])


def state(check: Check) -> str:
    return " ".join(STATE_WORDS[check.state])


def value(check: Check) -> str:
    if isinstance(check.value, str) or check.value is None:
        return check.value or fmt.DASH
    if check.unit == UNIX_SECONDS:
        return datetime.fromtimestamp(check.value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return fmt.quantity(check.value, check.unit)


def expected(check: Check) -> str:
    """`≥ 94 MB/s`, `≤ 5 %`; a dash where nothing is."""
    band = check.expected
    parts = [
        f"{sign} {fmt.quantity(end, check.unit)}" for sign, end in (("≥", band.lo), ("≤", band.hi)) if end is not None
    ]
    return ", ".join(parts) or fmt.DASH


def is_judged(band: Band) -> bool:
    return band.lo is not None or band.hi is not None


def judged(triage: Triage) -> list[Check]:
    """Checks with an expected range, or without a clear result; the worst first."""
    order = ("bad", "low", "unknown", "ok")
    shown = [check for check in triage.checks if is_judged(check.expected) or check.state != "ok"]
    return sorted(shown, key=lambda check: order.index(check.state))


def facts(triage: Triage) -> list[Check]:
    return [check for check in triage.checks if not is_judged(check.expected) and check.state == "ok"]
