"""The definition of a rule: an id, a name that states the problem, its needs, and one pure function."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Severity
from rn50_advisor.advisor.model.measures.measure import Measure

# Share of the step (or of the run) that a finding costs, from the catalogue: below 2 % nothing is reported.
SEVERITY_SHARES: tuple[tuple[float, Severity], ...] = (
    (0.30, "critical"),
    (0.15, "high"),
    (0.05, "medium"),
    (0.02, "low"),
)
# With fewer steady steps a mean is meaningless.
MIN_STEADY_STEPS = 5
_HEADING = re.compile(r"(?P<title>[A-Z][a-z]+(?: [a-z]+){0,4}):\s+")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides, and why it is this one."""

    value: float
    why: str


Thresholds = Mapping[str, float]
TriageChecks = tuple[str | tuple[str, ...], ...]
Check = Callable[[Analysis, Thresholds], Finding | Clear | NotMeasured]


@dataclass(frozen=True, slots=True)
class Rule:
    """`explains`: rules whose findings are consequences of this one where their ranks overlap.

    For rules of other distributions; `causes.py` has what those of this package explain.

    `triage_checks`: checks of `triage` that measure the same thing, the best first. `{gpu}` stands for each GPU of the finding, or for the
    job's worst one if it names none; of several in brackets the first that was measured counts.
    `needs`: measures without which it cannot look; a rule of another distribution may take them by name, as `MEASURES["step.time_s"]`.
    `severities`: what its findings can have, the worst first, where that does not follow from the share of the step that they cost.
    `traced`: a profiler's trace shows all that it looks at; any other rule is not measured on traces.
    """

    id: str
    name: str
    check: Check
    needs: tuple[Measure, ...] = ()
    explains: tuple[str, ...] = ()
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    doc: str = ""
    steady_steps: int = MIN_STEADY_STEPS
    triage_checks: TriageChecks = ()
    traced: bool = False
    severities: tuple[Severity, ...] = ()


def rule(
    module: str,
    name: str,
    check: Check,
    *,
    needs: tuple[Measure, ...] = (),
    explains: tuple[str, ...] = (),
    thresholds: Mapping[str, Threshold] | None = None,
    steady_steps: int = MIN_STEADY_STEPS,
    triage_checks: TriageChecks = (),
    traced: bool = False,
    severities: tuple[Severity, ...] = (),
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
        triage_checks,
        traced,
        severities,
    )


def sections(doc: str) -> Iterator[tuple[str, str]]:
    """The paragraphs of a rule's docstring as (heading, text); the heading is "" if the paragraph has none."""
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        heading = _HEADING.match(paragraph)
        yield (heading["title"], paragraph[heading.end() :]) if heading else ("", paragraph)


def severity(share: float) -> Severity | None:
    """The severity of a lost share; None below the smallest share worth mentioning."""
    return next((name for least, name in SEVERITY_SHARES if round(share, 9) >= least), None)


def confidence(a: Analysis, *, cap: float = 0.95) -> float:
    """Grows with the steady steps seen: 5 steps 0.6, 20 steps 0.8, 100 steps the cap."""
    steps = max(a.step_time.steady_steps, 1)
    return round(min(cap, 0.6 + 0.2 * min(1.0, (steps - 5) / 15) + 0.15 * min(1.0, max(0, steps - 20) / 80)), 2)
