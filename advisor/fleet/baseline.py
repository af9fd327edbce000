"""Baseline and spread of machines of one kind, robust against bad machines.

The baseline follows Microsoft's SuperBench (`fix_threshold` of superbench/analyzer/baseline_generation.py, with the
−5 % of its variance rule): take the mean, drop machines that are more than 5 % worse, and repeat with the rest until
none is dropped. The spread is the median absolute deviation times 1.4826, as for normal values; half of the machines
would have to be bad to widen it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rn50_advisor.advisor.model.documents.ranked_fleet import Baseline, Better, MachineNumber
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.report import plain_values

SCHEMA = "rn50-advisor/baseline/1"
DROP = 0.05
# Good machines differ by 1 %: a smaller spread is chance or due to rounding.
SPREAD_MIN = 0.01
_MAD_TO_SIGMA = 1.4826


def iterative_baseline(values: Sequence[float], better: Better) -> float:
    """Returns the mean of the values that are not more than 5 % worse than it. Raises ValueError without values."""
    if not values:
        raise ValueError("an empty baseline")
    kept = np.asarray(values, dtype=np.float64)
    while True:
        mean = float(kept.mean())
        worse = (kept - mean) if better == "lower" else (mean - kept)
        staying = kept[worse <= DROP * abs(mean)]
        if staying.size in (0, kept.size):
            return mean
        kept = staying


def baseline_of(group: str, component: str, readings: Sequence[MachineNumber]) -> Baseline:
    """Returns the baseline of one component over all machines of a group. Raises IndexError without readings."""
    values = np.asarray([reading.value for reading in readings], dtype=np.float64)
    first, median = readings[0], float(np.median(values))
    scales = [reading.scale for reading in readings if reading.scale is not None]
    scale = float(np.median(scales)) if scales else None
    mad = float(np.median(np.abs(values - median)))
    return Baseline(
        group,
        component,
        first.unit,
        first.better,
        _beside_a_step(values, scale, first.better) if scale else iterative_baseline(values.tolist(), first.better),
        median,
        max(_MAD_TO_SIGMA * mad, SPREAD_MIN * (abs(median) if scale is None else scale)),
        len(readings),
        scale=scale,
    )


def _beside_a_step(values: np.ndarray[Any, np.dtype[np.float64]], scale: float, better: Better) -> float:
    """Returns the baseline of a phase, where a value is worse by a share of the step and not of the phase: a wait of 1 % may double."""
    rest = values - scale if better == "higher" else values + scale
    return iterative_baseline(rest.tolist(), better) + (scale if better == "higher" else -scale)


def save(path: Path, baselines: Sequence[Baseline]) -> None:
    """Writes the baselines to a file. Raises AdvisorError."""
    document = {"schema": SCHEMA, "baselines": [plain_values(one) for one in baselines]}
    try:
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise AdvisorError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: Path) -> Mapping[tuple[str, str], Baseline]:
    """Returns stored baselines by group and component. Raises AdvisorError for a file that `save` has not written."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise AdvisorError(f"{path} holds no baselines of this version: {document['schema']!r}")
        found = [Baseline(**{**one, "source": "file"}) for one in document["baselines"]]
    except OSError as error:
        raise AdvisorError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise AdvisorError(
            f"{path} holds no baselines: {error}", "made by: rn50-advisor fleet --save-baseline F"
        ) from error
    return {(one.group, one.component): one for one in found}
