"""One check, and a triage with a finding, an unmeasured value and hostile strings. Not a test."""

from __future__ import annotations

from rn50_advisor.advisor.model.documents.machine_triage import Band, Triage, TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, Remedy, fact, judged
from rn50_advisor.advisor.triage.triage_runner import conclude

HOSTILE = "</script><script>alert(1)</script> | `x` \x1b[31m [a](http://b) @you"


def made(remedy: Remedy = "fix") -> Triage:
    slow = judged(
        "disk.sequential_mb_per_s", 20.0, "MB/s", Band(93.75, None, "AWS gp3"), remedy=remedy, hint=HOSTILE, why=HOSTILE
    )
    quota = judged("cpu.steal_share", 0.01, "share", Band(None, 0.05, "rule CPU002"))
    unknown = judged("decode.images_per_core_s", None, "images/s", Band(174.0), hint="busy")
    return conclude([slow, quota, unknown, fact("cpu.model", HOSTILE), TriageGap("gpu.*", HOSTILE, "install")])


def one(value: float, remedy: Remedy, name: str = "x") -> Found:
    return judged(
        name, value, "MB/s", Band(100.0, None, "a test"), remedy=remedy, hint=f"{name} is slow", why=f"{name} why"
    )
