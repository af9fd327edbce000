"""Folds consecutive steps of one rank into windows of time. Pure: arrays in, arrays out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.store.schema import BESIDE
from rn50_advisor.probes.rank.layout import FLAG_DEEP, FLAG_EPOCH_START, STEP_FIELDS

Rows = NDArray[np.int64]

COLUMNS = (*STEP_FIELDS, *BESIDE["steps"])
_AT = {name: position for position, name in enumerate(COLUMNS)}
_FIRST = [_AT[name] for name in ("step", "t_start_ns")]
_SUMMED = [_AT[name] for name in COLUMNS if name not in ("step", "t_start_ns", "t_end_ns", "loader", "flags")]
UNKNOWN_LOADER = -1
# Steps longer than this multiple of the median are outliers. The share of outliers kept is capped, so that a jittery job still folds.
OUTLIER_FACTOR = 1.5


def fold(rows: Rows, width_ns: int, outlier_share: float, *, bridge: bool) -> tuple[NDArray[np.intp], Rows]:
    """Returns the index of every window's first row, and the folded windows. `rows` has COLUMNS and at least one row.

    Outliers, rare first steps of an epoch and steps of deep windows stay unfolded. A window ends where step numbers restart and, unless
    `bridge`, where steps are missing; without `bridge` its phases therefore still sum to its time.
    """
    step, count = rows[:, _AT["step"]], rows[:, _AT["count"]]
    window = rows[:, _AT["t_start_ns"]] // width_ns
    missing = np.diff(step) - count[:-1]
    starts = np.ones(len(rows), bool)
    starts[1:] = (np.diff(window) != 0) | ((missing < 0) if bridge else (missing != 0))
    alone = _worth_keeping(rows, max(1, int(outlier_share * len(rows))))
    starts |= alone
    starts[1:] |= alone[:-1]

    firsts = np.flatnonzero(starts)
    lasts = np.append(firsts[1:], len(rows)) - 1
    folded = np.zeros((len(firsts), len(COLUMNS)), np.int64)
    folded[:, _FIRST] = rows[firsts][:, _FIRST]
    folded[:, _SUMMED] = np.add.reduceat(rows[:, _SUMMED], firsts, axis=0)
    folded[:, _AT["t_end_ns"]] = rows[lasts, _AT["t_end_ns"]]
    folded[:, _AT["flags"]] = np.bitwise_or.reduceat(rows[:, _AT["flags"]], firsts)
    loader = rows[:, _AT["loader"]]
    lowest, highest = np.minimum.reduceat(loader, firsts), np.maximum.reduceat(loader, firsts)
    folded[:, _AT["loader"]] = np.where(lowest == highest, lowest, UNKNOWN_LOADER)
    return firsts, folded


def _worth_keeping(rows: Rows, most: int) -> NDArray[np.bool_]:
    single = rows[:, _AT["count"]] == 1
    took = rows[:, _AT["t_end_ns"]] - rows[:, _AT["t_start_ns"]]
    keep: NDArray[np.bool_] = single & (took > OUTLIER_FACTOR * np.median(took / rows[:, _AT["count"]]))
    if keep.sum() > most:
        longest = np.argsort(np.where(keep, took, 0))[-most:]
        keep[:] = False
        keep[longest] = True
    epochs = single & (rows[:, _AT["flags"]] & FLAG_EPOCH_START != 0)
    if epochs.sum() <= most:
        keep |= epochs
    keep |= single & (rows[:, _AT["flags"]] & FLAG_DEEP != 0)
    return keep
