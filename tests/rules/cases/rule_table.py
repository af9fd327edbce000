"""The contents of one rule's table. Not a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """`lines`: for each threshold the job exactly on it or just inside, which fires, and one on its other side, which does not."""

    rule: str
    job: Callable[..., Analysis]
    lines: Mapping[str, tuple[Given, Given]]
    false_alarms: Mapping[str, Given]
    severities: tuple[tuple[Given, str], ...]
    ranks: tuple[int, ...] = ()
    where: Where | None = None
    best: tuple[Given, float] | None = None  # the largest predicted speed-up, if the next bottleneck caps it
    also_fires: Mapping[str, Given] = field(default_factory=dict)
    # cases that neither fire nor are clear, with the measures that they lack
    not_measured: Mapping[str, tuple[Given, tuple[str, ...]]] = field(default_factory=dict)
    step_s: float = 1.0  # the step that savings speak of


def waits(name: str) -> tuple[tuple[Given, str], ...]:
    return (({name: 0.30}, "critical"), ({name: 0.29}, "high"), ({name: 0.15}, "high"), ({name: 0.14}, "medium"))


def warm(speedup: float) -> float:
    """The largest predicted speed-up if nothing waits any more and the caches stay warm."""
    return speedup / (1 - 0.15 * (1 - 1 / speedup))
