"""Keep it, fix this setting, or hand it back: from the checks alone."""

from __future__ import annotations

from collections.abc import Sequence

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap, TriageVerdict
from rn50_advisor.advisor.triage.found_checks import Found


def verdict_of(found: Sequence[Found], gaps: Sequence[TriageGap]) -> TriageVerdict:
    """The machine goes back for what is bad and only its owner can change; a setting is fixed for whatever lies outside of its band.

    What is merely low and not to be changed by a setting is named and no reason to give a machine back: sound ones differ, too. Nor is
    what is bad and yet nobody's affair; that is named last.
    """
    owner = [one for one in found if one.remedy == "hand-back" and one.check.state == "bad"]
    settings = [one for one in found if one.remedy == "fix" and one.check.state in ("bad", "low")]
    weak = [one for one in found if one.remedy == "hand-back" and one.check.state == "low"]
    noted = [f"worth a word: {_said(one)}" for one in found if one.remedy == "note" and one.check.state == "bad"]
    if owner:
        return TriageVerdict("hand-back", (*(_said(one) for one in [*owner, *settings]), *noted))
    if settings:
        return TriageVerdict("fix", (*(_said(one) for one in [*settings, *weak]), *noted))
    judged = [one for one in found if one.check.expected.lo is not None or one.check.expected.hi is not None]
    sound = sum(one.check.state == "ok" for one in judged)
    unknown = sum(one.check.state == "unknown" for one in judged) + len(gaps)
    summary = f"{sound} of {len(judged)} checks with a band lie in it"
    left = (f"{unknown} could not be measured: see the gaps and what is unknown",) if unknown else ()
    return TriageVerdict("keep", (summary, *(f"low: {_said(one)}" for one in weak), *noted, *left))


def _said(one: Found) -> str:
    return one.why or f"{one.check.name}: {one.check.hint}"
