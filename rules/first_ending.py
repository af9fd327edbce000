"""Which came first where a job both hung and lost a rank."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, Stall

HANGS_AFTER_S = 30.0  # shorter pauses have many harmless causes
_SOON_AFTER_S = 15.0  # after the last look at what hangs; looks come every few seconds


def died_of_it(a: Analysis, stall: Stall, hangs_after_s: float = HANGS_AFTER_S) -> bool:
    """It hung until somebody or a watchdog put an end to it. A rank that died at its beginning is what the others hang for."""
    first_s = min((death.t_s for death in a.deaths if death.role == "rank"), default=0.0)
    began_s = stall.t_s - stall.stalled_s
    return not stall.resumed and stall.ended and began_s + hangs_after_s <= first_s <= stall.t_s + _SOON_AFTER_S
