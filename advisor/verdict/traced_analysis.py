"""Removes from the analysis of a profiler's trace what a trace cannot tell, so that its zeros are not taken for measurements.

A trace has the times of a few steps. It shows neither the machine nor the job around these steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.measure import Measure, Scope
from rn50_advisor.advisor.model.report import Capacity, Overhead

UNSEEN = "a profiler's trace does not show it"
# Measures that the analysis derives from columns that a trace leaves empty.
_ABSENT = (
    "step.gc_s", "step.run_delay_s", "step.system_s", "step.checkpoint_s", "step.evaluation_s", "step.evaluation_start_s",
    "step.epoch_start_s", "step.index_s", "step.before_update_s", "fetch.cpu_share", "fetch.delay_share", "fetch.blocked_share",
    "fetch.read_*", "fetch.system_share", "fetch.gc_share", "run.*", "epoch.*", "start.*", "gc.*", "compile.*", "interpreter.*",
    "collectives.*", "memory.*", "storage.*", "threads.*", "denormal.*", "table.*", "batch.sizes", "batch.usual_share",
)  # fmt: skip
# Reasons that are about the trace itself; any other speaks of a probe that was not there.
_OWN_REASONS = (
    "comm.*",
    "copy.mb",
    "gpu.host_paced_s",
    "gpu.idle_*",
    "kernel.*",
    "loader.*",
    "step.input_wait_s",
    "step.gap_s",
)


def as_traced(analysis: Analysis) -> Analysis:
    """The analysis without what its trace does not show; other analyses unchanged."""
    if not analysis.meta.traced:
        return analysis
    steps = analysis.coverage.steps if analysis.coverage is not None else 0  # their numbers need not begin with 0
    return replace(
        analysis,
        values={key: value for key, value in analysis.values.items() if not _is(key[0], _ABSENT)},
        reasons=_reasons(analysis.reasons),
        capacities=tuple(_known(capacity) for capacity in analysis.capacities),
        overhead=Overhead(),
        step_time=replace(analysis.step_time, steps=steps),
    )


def _is(measure: Measure, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(measure, pattern) for pattern in patterns)


def _reasons(reasons: Mapping[tuple[Measure, Scope], str]) -> dict[tuple[Measure, Scope], str]:
    return {key: why for key, why in reasons.items() if _is(key[0], _OWN_REASONS)}


def _known(capacity: Capacity) -> Capacity:
    """The capacity with a basis that fits a trace."""
    if capacity.stage == "storage" and capacity.samples_per_s is None:
        return replace(capacity, basis=UNSEEN)
    if capacity.stage == "preprocessing" and capacity.samples_per_s is not None:
        return replace(capacity, basis="time of the fetches in the training process, all of it taken for CPU time")
    return capacity
