"""Many machines side by side: the object that every output of `fleet` shows; contract `rn50-advisor/fleet/1`.

```
machines[]   the worst first: {name, group, score, outlier, worst: component|null, results: [{kind, file, state, made, why}],
             deviations: [{component, value, unit, baseline, deviation, score, outlier}],
             differences: [{name, value, usual}], missing: [components that it lacks and most of its group have],
             flaws: [reasons other than its numbers that make it an outlier]}
baselines[]  {group, component, unit, better: higher|lower, baseline, median, spread, machines, source: fleet|file, scale}
unread[]     {file, reason}
notes[]
```
`score` is the distance from the group's median in robust standard deviations, negative if worse; a machine has the score of
its worst component. `deviation` is the share by which a value is worse (negative) or better than the baseline. It is a share
of the baseline; for a phase of a step, of the step; for a value that should be zero, of its limit. `scale` is that step or limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.report import plain_values

SCHEMA = "rn50-advisor/fleet/1"

Better = Literal["higher", "lower"]
Kind = Literal["triage", "bench", "run", "report"]


@dataclass(frozen=True, slots=True)
class MachineNumber:
    """One number of one machine. `scale`: the value that a difference is a share of, if not the baseline."""

    value: float
    unit: str
    better: Better
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class ResultFile:
    kind: Kind
    file: str
    state: str = ""  # the result's own verdict
    made: float | None = None  # Unix seconds
    why: str = ""  # the first reason of a verdict


@dataclass(frozen=True, slots=True)
class Baseline:
    group: str
    component: str
    unit: str
    better: Better
    baseline: float
    median: float
    spread: float  # standard deviation, estimated from the median absolute deviation
    machines: int
    source: Literal["fleet", "file"] = "fleet"
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class Deviation:
    component: str
    value: float
    unit: str
    baseline: float
    deviation: float | None  # None: the baseline is zero
    score: float
    outlier: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """A property in which a machine differs from nearly all others of its group. It is not ranked, but may be a cause."""

    name: str
    value: str
    usual: str


@dataclass(frozen=True, slots=True)
class FleetMachine:
    name: str
    group: str
    score: float
    outlier: bool
    worst: str | None
    results: tuple[ResultFile, ...]
    deviations: tuple[Deviation, ...]
    differences: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fleet:
    machines: tuple[FleetMachine, ...]
    baselines: tuple[Baseline, ...]
    unread: tuple[Unread, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outliers(self) -> tuple[FleetMachine, ...]:
        return tuple(machine for machine in self.machines if machine.outlier)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; NaN and infinities become null."""
        return {"schema": SCHEMA, **plain_values(self)}


class OutliersFound(AdvisorError):
    """`fleet`: a machine differs from the others of its kind."""

    exit_code = 3
