"""What a rule is: an id, a name that states the problem, what it needs to see, and one pure function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Severity

# Share of the step (or of the run) that a finding costs, from the catalogue: below 2 % nothing is said.
SEVERITY_SHARES: tuple[tuple[float, Severity], ...] = (
    (0.30, "critical"),
    (0.15, "high"),
    (0.05, "medium"),
    (0.02, "low"),
)
# Fewer steady steps than this and a mean says nothing about the run.
MIN_STEADY_STEPS = 5


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides, and why it is this one."""

    value: float
    why: str


Thresholds = Mapping[str, float]
Check = Callable[[Analysis, Thresholds], Finding | Clear | NotMeasured]


@dataclass(frozen=True, slots=True)
class Rule:
    """`explains`: rules whose findings are consequences of this one where their ranks overlap."""

    id: str
    name: str
    check: Check
    needs: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    doc: str = ""
    steady_steps: int = MIN_STEADY_STEPS


def rule(
    module: str,
    name: str,
    check: Check,
    *,
    needs: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
    thresholds: Mapping[str, Threshold] | None = None,
    steady_steps: int = MIN_STEADY_STEPS,
) -> Rule:
    """The rule of a module named `dat003_…`: id and text come from the module itself."""
    identity = module.rsplit(".", 1)[-1].split("_", 1)[0].upper()
    return Rule(
        identity,
        name,
        check,
        needs,
        explains,
        thresholds or {},
        (sys.modules[module].__doc__ or "").strip(),
        steady_steps,
    )


def severity(share: float) -> Severity | None:
    """None below the share worth mentioning."""
    return next((name for least, name in SEVERITY_SHARES if round(share, 9) >= least), None)


def confidence(a: Analysis, *, cap: float = 0.95) -> float:
    """Grows with the steady steps seen: 5 steps 0.6, 20 steps 0.8, 100 steps the cap."""
    steps = max(a.step_time.steady_steps, 1)
    return round(min(cap, 0.6 + 0.2 * min(1.0, (steps - 5) / 15) + 0.15 * min(1.0, max(0, steps - 20) / 80)), 2)
