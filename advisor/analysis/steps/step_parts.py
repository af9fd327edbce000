"""Measures the step: its length, its parts on each rank, and the run's duration and evaluation share."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.phases import AFTER_UPDATE, BEFORE_UPDATE, IN_MODEL
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, tails
from rn50_advisor.advisor.model.input.input_source import InputSource
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    RUN_DURATION_S,
    RUN_EVALUATION_SHARE,
    STEP_BEFORE_UPDATE_S,
    STEP_CHECKPOINT_S,
    STEP_COMPUTE_S,
    STEP_EARLY_GAP_S,
    STEP_EVALUATION_S,
    STEP_GAP_S,
    STEP_GC_S,
    STEP_LATE_GAP_S,
    STEP_LONGEST_GAP_S,
    STEP_LONGEST_GAP_SHARE,
    STEP_OWN_S,
    STEP_RUN_DELAY_S,
    STEP_SAMPLES,
    STEP_STEADY,
    STEP_SYSTEM_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Throughput
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED

_STEPS_OF_QUARTERS_MIN = 80  # twenty for each median
UNCLOCKED = (
    "the kernel keeps no run-queue delay (schedstat): waiting for a core cannot be distinguished from waiting for data"
)


def step_values(
    steady: Mapping[int, RankSteps], accounts: StepAttribution, source: InputSource | None, unclocked: Collection[int]
) -> Measured:
    """Measures of the steady steps. `unclocked`: ranks whose kernel keeps no run-queue delay, so that zeros there are no measurement."""
    found = Measured()
    found[STEP_TIME_S, JOB] = accounts.step_s
    found[STEP_STEADY, JOB] = min(float(s.count.sum()) for s in steady.values())
    for rank in unclocked:
        found.missing[STEP_RUN_DELAY_S, rank] = UNCLOCKED
    for rank, steps in steady.items():
        own = accounts.own[rank]
        _gap_values(steps, own["gap"], source, found)
        # Without a loader, the forward may be a fetch, except for the part that a profile found in the model. Backward and optimizer still
        # show a rank that computes slower.
        in_model = steps.per_step(IN_MODEL) if IN_MODEL in steps.columns else 0.0
        forward = own["forward"] if steps.fed else min(own["forward"], in_model)
        found[STEP_COMPUTE_S, rank] = forward + own["backward"] + own["optimizer"]
        found[STEP_EVALUATION_S, rank] = own["gap.evaluation"]
        found[STEP_CHECKPOINT_S, rank] = own["gap.checkpoint"]
        found[STEP_OWN_S, rank] = sum(own.values())
        found[STEP_GC_S, rank] = steps.per_step("gc")
        if rank not in unclocked:
            found[STEP_RUN_DELAY_S, rank] = steps.per_step("run_delay")
        clocked = steps.sample & ((steps.flags & FLAG_CLOCKED) != 0)
        if clocked.any():
            found[STEP_SYSTEM_S, rank] = float(steps.columns["compute_system"][clocked].mean())
        samples = steps.per_step("samples")
        if samples > 0:
            found[STEP_SAMPLES, rank] = samples
    known = found.by_rank(STEP_SAMPLES)
    if known:
        found[STEP_SAMPLES, JOB] = sum(known.values()) / len(known)
    return found


def _gap_values(steps: RankSteps, gap_s: float, source: InputSource | None, found: Measured) -> None:
    if steps.fed:
        found[STEP_GAP_S, steps.rank] = gap_s
        gaps = steps.columns["gap"]
        if gaps.sum() > 0:
            longest = float(gaps[steps.count == 1].max(initial=0.0))
            found[STEP_LONGEST_GAP_S, steps.rank] = longest
            found[STEP_LONGEST_GAP_SHARE, steps.rank] = longest / float(gaps.sum())
        quarters = _quarters(steps, gaps)
        if quarters and min(np.diff(quarters)) > 0:
            found[STEP_EARLY_GAP_S, steps.rank], found[STEP_LATE_GAP_S, steps.rank] = quarters[0], quarters[-1]
        if BEFORE_UPDATE in steps.columns:
            found[STEP_BEFORE_UPDATE_S, steps.rank] = min(steps.per_step(BEFORE_UPDATE), gap_s)
    elif AFTER_UPDATE in steps.columns:
        found[STEP_GAP_S, steps.rank] = gap_s
    elif source is not None:
        found.missing[STEP_GAP_S, steps.rank] = source.why_unknown


def _quarters(steps: RankSteps, seconds: NDArray[np.float64]) -> list[float]:
    """Median seconds per step in each quarter of the steps; empty if there are few."""
    if float(steps.count.sum()) < _STEPS_OF_QUARTERS_MIN:
        return []
    place = (np.cumsum(steps.count) - 0.5 * steps.count) / steps.count.sum()
    parts = [(seconds / steps.count)[(place >= low) & (place < low + 0.25)] for low in (0.0, 0.25, 0.5, 0.75)]
    return [float(np.median(part)) for part in parts] if all(part.size for part in parts) else []


def throughput(accounts: StepAttribution | None, steady: Mapping[int, RankSteps], samples: float | None) -> Throughput:
    if accounts is None or accounts.step_s <= 0:
        return Throughput(None, None, samples, len(steady))
    per_second = 1.0 / accounts.step_s
    return Throughput(samples * per_second * len(steady) if samples else None, per_second, samples, len(steady))


def run_values(recording: Recording, everything: Mapping[int, RankSteps]) -> Measured:
    found = Measured({(RUN_DURATION_S, JOB): duration_s(recording)})
    after = tails(recording)
    shares = []
    for rank, steps in everything.items():
        spent = float(steps.columns["evaluation"].sum())
        end = int(steps.end_ns[-1])
        if rank in after:
            spent += float(after[rank].columns["evaluation"].sum())
            end = int(after[rank].end_ns[-1])
        shares.append(spent / max((end - int(steps.start_ns[0])) / 1e9, 1e-9))
    if shares:
        found[RUN_EVALUATION_SHARE, JOB] = max(shares)
    return found


def duration_s(recording: Recording) -> float:
    meta = recording.meta
    return ((meta.ended_ns or meta.last_ns) - meta.started_ns) / 1e9
