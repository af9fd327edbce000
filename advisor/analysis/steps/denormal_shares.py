"""Measures how many numbers of the weights, gradients and optimizer state are denormal, and how much slower steps became with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.steps.phases import split_of
from rn50_advisor.advisor.analysis.steps.speed_changes import usual_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    DENORMAL_AFTER_S,
    DENORMAL_BEFORE_S,
    DENORMAL_EXPECTED_S,
    DENORMAL_FLUSHED,
    DENORMAL_GRADIENTS,
    DENORMAL_SINCE,
    DENORMAL_STATE,
    DENORMAL_STEP_S,
    DENORMAL_WEIGHTS,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.statistics import weighted_quantile
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import DENORMAL_FIELDS

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

_LOOKS_MIN = 3
_LATEST_LOOKS = 8  # which tell today's shares: 32 tensors of each kind
_NONE = 0.001  # share up to which looks count as looks without: such products of matrices took 1.2 times as long, sums 1.0 times
_FEW = 0.1  # of today's share: up to there looks count as looks without, too, since single units of a sound model die at any time
_STEPS_MIN = 20  # on either side
_PACE_CHANGE_MAX = 1.5  # by more the machine's speed hardly changes, but the work of a step
_KINDS = {DENORMAL_WEIGHTS: "weights", DENORMAL_GRADIENTS: "gradients", DENORMAL_STATE: "state"}


def denormal_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Shares of denormal numbers in the latest looks of each rank; where there were none at first, what met them before and since."""
    found, known = Measured(), facts_by_rank(recording)
    for rank, steps in steady.items():
        facts = known.get(rank, RankFacts())
        looks = _looks(facts)
        if looks["looks"].sum() < _LOOKS_MIN:
            why = "too few looks at single-precision tensors of an optimizer on the CPU"
            found.missing.update({(measure, rank): why for measure in (*_KINDS, DENORMAL_FLUSHED)})
            continue
        latest = np.cumsum(looks["looks"][::-1])[::-1] - looks["looks"] < _LATEST_LOOKS
        found[DENORMAL_FLUSHED, rank] = float(looks["flushed"][latest].sum() / looks["looks"][latest].sum())
        for measure, kind in _KINDS.items():
            if looks[kind][latest].any():
                found[measure, rank] = float(looks[f"denormal_{kind}"][latest].sum() / looks[kind][latest].sum())
        _add_growth(found, recording, steps, looks, latest, ranks=len(steady))
    return found


def _looks(facts: RankFacts) -> dict[str, Numbers]:
    """Columns of the looks, oldest first."""
    rows = [row for row in facts.get("denormals", ()) if len(row) == len(DENORMAL_FIELDS)]
    table = np.array(rows, np.int64).reshape(-1, len(DENORMAL_FIELDS))
    return dict(zip(DENORMAL_FIELDS, table.T, strict=True))


def _add_growth(
    found: Measured,
    recording: Recording,
    steps: RankSteps,
    looks: Mapping[str, Numbers],
    latest: NDArray[np.bool_],
    *,
    ranks: int,
) -> None:
    """Adds what a step needed for what meets them before the first ones, and since there are as many as at last."""
    shares = _largest_share(looks)
    at_last = float(np.median(shares[latest]))
    some = shares > max(_NONE, _FEW * at_last)
    first = int(np.argmax(some)) if some.any() else 0
    if not first:
        return  # there are none, or they were there from the first look on
    fewer = np.flatnonzero(shares < 0.5 * at_last)
    many = min(int(fewer[-1]) + 1, shares.size - 1) if fewer.size else first
    usual, phases = usual_rows(steps), split_of(recording, steps, ranks=ranks).phases
    before = usual & (steps.step + steps.count <= looks["step"][first - 1] + 1)
    since = usual & (steps.step >= looks["step"][many])
    if min(steps.count[before].sum(), steps.count[since].sum()) < _STEPS_MIN:
        return
    layers, optimizer = phases["forward"] + phases["backward"], phases["optimizer"]
    in_layers = max(found.get((measure, steps.rank), 0.0) for measure in (DENORMAL_WEIGHTS, DENORMAL_GRADIENTS)) > _NONE
    met = layers + optimizer if in_layers else optimizer
    before_s, pace = _usual(met, steps, before), 1.0
    if not in_layers:
        # what meets none shows the machine's speed: neighbours made all phases up to 1.4 times as long, and equally so
        pace = _usual(layers, steps, since) / max(_usual(layers, steps, before), 1e-9)
    found[DENORMAL_SINCE, steps.rank] = float(looks["step"][first])
    found[DENORMAL_BEFORE_S, steps.rank] = before_s
    found[DENORMAL_EXPECTED_S, steps.rank] = before_s * min(max(pace, 1.0 / _PACE_CHANGE_MAX), _PACE_CHANGE_MAX)
    found[DENORMAL_AFTER_S, steps.rank] = _usual(met, steps, since)
    found[DENORMAL_STEP_S, steps.rank] = _usual(steps.length, steps, since)


def _largest_share(looks: Mapping[str, Numbers]) -> Array:
    """The share of denormal numbers at each look, of the kind that has most of them."""
    shares = [looks[f"denormal_{kind}"] / np.maximum(looks[kind], 1) for kind in _KINDS.values()]
    return np.asarray(np.max(shares, axis=0), np.float64)


def _usual(seconds: Array, steps: RankSteps, rows: NDArray[np.bool_]) -> float:
    return weighted_quantile((seconds / steps.count)[rows], steps.count[rows], 0.5)
