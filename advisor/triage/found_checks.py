"""The results of a group of checks: the check, its remedy, and possible disturbances."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rn50_advisor.advisor.instances.metadata import NamedInstance
from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, CheckState, TriageGap
from rn50_advisor.advisor.triage.storage.timed_io import Listing

# fix: whoever rents the machine can change it; hand-back: only its owner can; note: worth a word, no reason to act
Remedy = Literal["note", "fix", "hand-back"]

# Outside of a band is low; at less than this share of its lower end, or beyond its upper end by as much, it is bad: benchmarks of sound
# machines of several kinds differ by a third, not by a half. Of one and the same model they do not: there whoever judges says so.
BAD_SHARE = 0.5
# Share of wall time that processes with nothing to wait for spend on a core; with less, something holds them back.
RAN_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Found:
    """`needs_cores`: others who use our cores make the number worse, which is not the machine's fault. `why`: for the verdict.

    `ran_share`: of the time that it took, how much our processes were on a core; None where that does not matter. `gpus`: that it is about.
    """

    check: Check
    remedy: Remedy = "note"
    needs_cores: bool = False
    why: str = ""
    ran_share: float | None = None
    gpus: tuple[int, ...] = ()

    def is_of_a_gpu(self, name: str) -> bool:
        """True for the check of this name of any GPU."""
        return len(self.gpus) == 1 and self.check.name == f"gpu.{self.gpus[0]}.{name}"


Item = Found | TriageGap


@dataclass(frozen=True, slots=True)
class TriageOptions:
    """The resources a triage may use. `large`: more than 2 GB was agreed to; `python`: the interpreter that trains.

    `metadata`: the provider's service was to be asked, and `named` is its answer. `listing`: files of the data; None where it does not
    answer. `until_s`: by the monotonic clock, when this must be over.
    """

    scratch: Path
    python: str
    data: Path | None = None
    full: bool = False
    large: bool = False
    root: Path = Path("/")
    metadata: bool = False
    named: NamedInstance | None = None
    listing: Listing | None = None
    until_s: float = math.inf

    @property
    def left_s(self) -> float:
        return max(0.0, self.until_s - time.monotonic())


def fact(name: str, value: float | str | None, unit: str = "", *, hint: str = "") -> Found:
    """A check that nothing is expected of."""
    state: CheckState = "unknown" if value is None else "ok"
    return Found(Check(name, value, unit, Band(source="reported, not judged"), state, hint))


def judged(
    name: str,
    value: float | None,
    unit: str,
    band: Band,
    *,
    remedy: Remedy = "note",
    strict: bool = False,
    bad_share: float = BAD_SHARE,
    needs_cores: bool = False,
    hint: str = "",
    why: str = "",
) -> Found:
    """The state by the band; `strict`: outside is bad at once. The hint is only for those that are not ok."""
    state = state_of(value, band, strict=strict, bad_share=bad_share)
    return Found(
        Check(name, value, unit, band, state, "" if state == "ok" else hint),
        remedy,
        needs_cores,
        why if state != "ok" else "",
    )


def state_of(value: float | None, band: Band, *, strict: bool = False, bad_share: float = BAD_SHARE) -> CheckState:
    """Bad below this share of the lower end, or as far above the upper one; `strict`: outside at once; 0: never, only low."""
    if value is None:
        return "unknown"
    if band.lo is not None and value < band.lo:
        return "bad" if strict or value < bad_share * band.lo else "low"
    if band.hi is not None and value > band.hi:
        return "bad" if strict or value * bad_share > band.hi else "low"
    return "ok"


def unproved(found: Found, reason: str) -> Found:
    """The number stands, but it says nothing about the machine."""
    check = replace(found.check, state="unknown", hint=reason)
    return replace(found, check=check, remedy="note", why="")
