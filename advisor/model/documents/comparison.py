"""Several runs side by side: the object that every output of `compare` shows; `as_json` is the contract `rn50-advisor/compare/1`.

```
baseline     index into runs: the run that every other is compared with
runs[]       {name, started, argv, ranks, samples_per_s, samples_per_s_per_rank, step_s, steady_steps, batch_size, verdict, rule, title,
              efficiency: ratio|null}      efficiency: samples/s of a rank over that of a rank in the run with the fewest
pairs[]      {base, other, change: improved|regressed|same|unknown, measure: "samples/s"|"steps/s"|null, speed: ratio|null, why,
              phases: [{phase, base_s, other_s, delta_s: {value, lo, hi}}] ("step": the whole), facts: [{group, name, base, other}],
              findings: [{rule, title, state: appeared|gone|stays, base_s, other_s}], notes: []}
method       {confidence, between_runs, blocks, basis}      how the intervals were computed. For each run, `between_runs` is the standard
             deviation between runs of the same job, as a share of the step, and `blocks` the number of blocks of its steps
gate         {max_regression, failed: [indices into runs], unjudged: [indices into runs]}|null
```
A ratio is {value, lo, hi}: the run divided by its baseline, with the ends of the interval. Seconds are per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.report import State, plain_values

SCHEMA = "rn50-advisor/compare/1"
WHOLE_STEP = "step"  # listed beside the phases

Change = Literal["improved", "regressed", "same", "unknown"]
Measure = Literal["samples/s", "steps/s"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval."""

    value: float
    lo: float
    hi: float


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One run in the table of runs."""

    name: str
    started: float | None  # Unix seconds
    argv: tuple[str, ...]
    ranks: int
    samples_per_s: float | None
    samples_per_s_per_rank: float | None
    step_s: float | None  # mean of the steady steps
    steady_steps: int
    batch_size: float | None
    verdict: State
    rule: str | None
    title: str
    efficiency: Estimate | None = None


@dataclass(frozen=True, slots=True)
class PhaseDelta:
    """One phase of the critical path, or the whole step, in seconds per step."""

    phase: str
    base_s: float
    other_s: float
    delta_s: Estimate


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differs between two runs. None: the run has no such fact."""

    group: str  # arguments, loader, job, versions, environment, machine
    name: str
    base: str | None
    other: str | None


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that is worth fixing in at least one of the runs. `base_s` and `other_s`: its cost in seconds per step, None if absent."""

    rule: str
    title: str
    state: Literal["appeared", "gone", "stays"]
    base_s: float | None
    other_s: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    base: int
    other: int
    change: Change
    measure: Measure | None
    speed: Estimate | None
    why: str
    phases: tuple[PhaseDelta, ...] = ()
    facts: tuple[FactChange, ...] = ()
    findings: tuple[FindingChange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Method:
    confidence: float
    between_runs: tuple[float, ...]
    blocks: tuple[int, ...]
    basis: str


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of `--max-regression`, as indices of runs. `failed`: slower by more; `unjudged`: could not be compared."""

    max_regression: float
    failed: tuple[int, ...]
    unjudged: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    baseline: int
    runs: tuple[RunColumn, ...]
    pairs: tuple[Pair, ...]
    method: Method
    gate: Gate | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; NaN and infinities become null."""
        document: dict[str, Any] = {"schema": SCHEMA}
        document.update(plain_values(self))
        return document
