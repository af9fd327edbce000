"""Decides which came first if a job both hung and lost a rank."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, Stall

HANGS_AFTER_S = 30.0  # shorter pauses have many harmless causes
_SOON_AFTER_S = 15.0  # after the last check of the hang; checks come every few seconds


def died_of_it(a: Analysis, stall: Stall, hangs_after_s: float = HANGS_AFTER_S) -> bool:
    """True if the job hung until a user or a watchdog ended it. If a rank died when the hang began, the others hang because of it."""
    first_s = min((death.t_s for death in a.deaths if death.role == "rank"), default=0.0)
    began_s = stall.t_s - stall.stalled_s
    return not stall.resumed and stall.ended and began_s + hangs_after_s <= first_s <= stall.t_s + _SOON_AFTER_S
