"""Detects that a job does more work since some step: more parameters learn, its batches are larger, or its steps have more operations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.model.wording.quantities import quantity
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import SIZES_APART, WORK_FIELDS

_NEAR_S = 3.0  # the recorder looks once a second, and a change of speed is found a little off its step
_NEAR_STEPS = 4.0
_MODEL = ("forward", "backward", "optimizer", "comm_exposed")
_RATIO_SPREAD = 1.1  # allowed factor for the error of a measured ratio
_COUNTED_MIN = 5  # steps on each side whose operations were counted
_EXPLAINED_MIN = 0.5  # of the growth of the steps, by that of their operations


def more_work(facts: RankFacts, step: int, levels_s: tuple[float, float], phase: str) -> str:
    """The extra work of a rank since about this step, if it can explain a slowdown in this phase; otherwise empty."""
    if phase not in _MODEL:
        return ""
    near = max(_NEAR_STEPS, _NEAR_S / levels_s[0])
    slower = levels_s[1] / levels_s[0]
    changes = [
        _change_in_words(was, now, slower) for was, now in pairwise(_states(facts)) if abs(now["step"] - step) <= near
    ]
    return next((words for words in changes if words), _more_operations(facts, step, slower))


def _more_operations(facts: RankFacts, step: int, slower: float) -> str:
    """Episodes and sequences that become longer have more operations, though no batch shows it."""
    counted = facts.get("operations")
    rows = [] if counted is None else [row for row in counted.get("by_step", ()) if len(row) == 2]
    counts = np.array(rows, dtype=np.float64).reshape(-1, 2)
    before, after = counts[counts[:, 0] < step, 1], counts[counts[:, 0] >= step, 1]
    if min(len(before), len(after)) < _COUNTED_MIN:
        return ""
    was, now = float(np.median(before)), float(np.median(after))
    if now < (1.0 + _EXPLAINED_MIN * (slower - 1.0)) * was:
        return ""
    return f"{now:,.0f} differentiable operations in a step, {was:,.0f} before"


def learning(facts: RankFacts) -> int | None:
    """Number of parameters that had gradients at the last inspection of the rank."""
    states = _states(facts)
    return states[-1]["trained"] if states else None


def batch_bytes_at(facts: RankFacts, steps: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Bytes per batch of the rank at each of these steps; None if its batches were not seen."""
    seen = [state for state in _states(facts) if state["batch_bytes"] > 0]
    if not seen:
        return None
    at = np.searchsorted([state["step"] for state in seen], steps, side="right") - 1
    return np.array([state["batch_bytes"] for state in seen], dtype=np.float64)[np.maximum(at, 0)]


def _states(facts: RankFacts) -> list[Mapping[str, int]]:
    rows = facts.get("work", ())
    return [dict(zip(WORK_FIELDS, state, strict=True)) for state in rows if len(state) == len(WORK_FIELDS)]


def _change_in_words(was: Mapping[str, int], now: Mapping[str, int], slower: float) -> str:
    if now["trained"] > was["trained"]:
        return f"{now['trained']:,} parameters learn, {was['trained']:,} before"
    if now["first"] != was["first"]:
        return f"{now['trained']:,} parameters learn, and not the same {was['trained']:,} as before"
    size = now["batch_bytes"] / was["batch_bytes"] if was["batch_bytes"] else 0.0
    # attention grows with the square of its input's length
    if size >= SIZES_APART and slower <= _RATIO_SPREAD * size**2:
        return f"a batch holds {quantity(size, '×')} the bytes"
    return ""
