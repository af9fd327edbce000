"""Selects the steady steps: those after the warm-up that every rank has made."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.cold_start import cold_epoch, run_ahead_rows
from rn50_advisor.advisor.analysis.steps.restarts import one_start
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import (
    FLAG_DEEP,
    FLAG_EPOCH_START,
    FLAG_NO_LOADER,
    FLAG_TAIL,
    FLAG_TRACED,
    STEP_FIELDS,
)

Array = NDArray[np.float64]

# A leading step belongs to the warm-up while it takes more than this many times the median of the later half. Allocations, autotuning,
# worker start and compilation make a step several times longer, not a few percent.
_WARM_UP_FACTOR = 1.5
_WARM_UP_MIN = 1  # the first step always includes one-off work
_WARM_UP_SMALL = 3  # with many steps, the first three are left out whatever they took
_MANY_ROWS = 20
_WARM_UP_MAX_SHARE = 0.5
TRACED_START_ROWS = 3  # in a profiler's trace with as many steps, the first is left out: the profiler has just started
# Among rows that hold several steps, isolated single steps are outliers that retention kept, at most a few in a row. Single steps that
# nodes send each other come a dozen in a row, and the latest thousands are consecutive.
_SAMPLE_ROWS = 8
_LATEST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The rows of one rank, oldest first; columns in seconds. A row may hold several folded steps (`count`)."""

    rank: int
    step: NDArray[np.int64]
    count: Array
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    flags: NDArray[np.int64]
    columns: Mapping[str, Array]
    left: bool = False  # the rank ended by itself

    @property
    def length(self) -> Array:
        return (self.end_ns - self.start_ns) / 1e9

    def keep(self, mask: NDArray[np.bool_]) -> RankSteps:
        columns = {name: values[mask] for name, values in self.columns.items()}
        return RankSteps(
            self.rank,
            self.step[mask],
            self.count[mask],
            self.start_ns[mask],
            self.end_ns[mask],
            self.flags[mask],
            columns,
            self.left,
        )

    def per_step(self, name: str) -> float:
        """Mean of a column over all steps: seconds or counts per step."""
        return float(self.columns[name].sum() / max(self.count.sum(), 1.0))

    @property
    def per_step_s(self) -> float:
        """Mean seconds per step."""
        return float(self.length.sum() / max(self.count.sum(), 1.0))

    @property
    def sample(self) -> NDArray[np.bool_]:
        """Mask of single steps in which outliers have their true frequency; of all single steps if that leaves none."""
        single = np.asarray(self.count == 1)
        if single.all():
            return single
        edges = np.flatnonzero(np.diff(np.concatenate([[0], single.astype(np.int8), [0]])))
        first, last = edges[::2], edges[1::2]
        many = last - first >= _SAMPLE_ROWS
        opened = np.zeros(single.size + 1, np.int8)
        opened[first[many]], opened[last[many]] = 1, -1
        found = np.cumsum(opened)[:-1] > 0
        return found if found.any() else single

    @property
    def latest(self) -> NDArray[np.int64]:
        """Rows of the latest steps in `sample`. Older steps, their events and their records are thinned out, each independently."""
        return np.flatnonzero(self.sample)[-_LATEST_ROWS:]

    @property
    def epoch_start(self) -> NDArray[np.bool_]:
        return np.asarray((self.flags & FLAG_EPOCH_START) != 0)

    @property
    def traced(self) -> bool:
        """True if these steps come from a profiler's trace."""
        return bool(self.flags.size and self.flags[0] & FLAG_TRACED)

    @property
    def fed(self) -> bool:
        """True if a DataLoader fed most of these steps."""
        single = self.sample
        # a row of several steps has the flags of all of them
        flags = self.flags[single] if single.any() else self.flags
        return bool(((flags & FLAG_NO_LOADER) == 0).mean() > 0.5) if flags.size else False


def _rank_steps(rank: int, table: Table) -> RankSteps:
    table = table[np.argsort(table["t_start_ns"], kind="stable")]
    own = [name for name in STEP_FIELDS if name not in ("step", "t_start_ns", "t_end_ns")]
    columns = {
        name.removesuffix("_ns"): table[name] / (1e9 if name.endswith("_ns") else 1.0)  # integers become floats
        for name in own
    }
    return RankSteps(
        rank,
        table["step"].astype(np.int64),
        table["count"].astype(np.float64),
        table["t_start_ns"],
        table["t_end_ns"],
        table["flags"].astype(np.int64),
        columns,
    )


def warm_up_rows(steps: RankSteps) -> int:
    """Number of leading rows that are warm-up."""
    rows = steps.step.size
    if steps.traced:
        return int(rows >= TRACED_START_ROWS)
    if rows <= _WARM_UP_MIN:
        return rows
    aside = steps.columns["evaluation"] + steps.columns["checkpoint"]
    core = (steps.length - aside) / np.maximum(steps.count, 1.0)
    usual = float(np.median(core[rows // 2 :]))
    at_least = _WARM_UP_SMALL if rows >= _MANY_ROWS else _WARM_UP_MIN
    most = max(at_least, int(rows * _WARM_UP_MAX_SHARE))
    slow = core > _WARM_UP_FACTOR * usual
    first = at_least
    while first < most and slow[first]:
        first += 1
    return first


def all_steps(recording: Recording) -> dict[int, RankSteps]:
    """Every rank's real steps, without the time after the last one and without those of deep windows."""
    looked_into = deep_steps(recording)
    found = {}
    for rank, table in sorted(recording.steps.items()):
        real = table[(table["flags"] & FLAG_TAIL) == 0]
        if looked_into.size:
            real = real[(real["count"] > 1) | ~np.isin(real["step"], looked_into)]
        if real.size:
            found[rank] = replace(_rank_steps(rank, real), left=bool(table["flags"][-1] & FLAG_TAIL))
    return found


def deep_steps(recording: Recording) -> NDArray[np.int64]:
    """Steps in which any rank ran under torch's profiler, because the others waited for it."""
    found = [t["step"][((t["flags"] & FLAG_DEEP) != 0) & (t["count"] == 1)] for t in recording.steps.values()]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def tails(recording: Recording) -> dict[int, RankSteps]:
    """The time that each rank spent after its last step, for ranks that exited by themselves."""
    found = {}
    for rank, table in sorted(recording.steps.items()):
        tail = table[(table["flags"] & FLAG_TAIL) != 0]
        if tail.size:
            found[rank] = _rank_steps(rank, tail)
    return found


def steady_steps(everything: Mapping[int, RankSteps]) -> dict[int, RankSteps]:
    """The steps that all ranks have made after every rank's warm-up and a first epoch with cold caches; empty if there are none.

    For ranks that were started again, only the steps of one start.
    """
    if not everything:
        return {}
    everything = one_start(everything)
    warm_up = {rank: warm_up_rows(steps) for rank, steps in everything.items()}
    started = {rank: rows + run_ahead_rows(everything[rank], rows) for rank, rows in warm_up.items()}
    first = max(int(steps.step[min(started[rank], steps.step.size - 1)]) for rank, steps in everything.items())
    cold = cold_epoch(everything)
    if cold is not None:
        first = max(first, cold.next_step)
    # the last step includes work that the job does before it leaves its loop
    last = min(int(steps.step[-1]) - (steps.left and steps.step.size >= _MANY_ROWS) for steps in everything.values())
    kept = {}
    for rank, steps in everything.items():
        mask = (steps.step >= first) & (steps.step <= last)
        if warm_up_rows(steps) >= steps.step.size or not mask.any():
            return {}
        kept[rank] = steps.keep(mask)
    return kept


def common_rows(steady: Mapping[int, RankSteps]) -> dict[int, NDArray[np.int64]]:
    """By rank, row numbers of the sampled steps that all ranks have, in step order, so that they match across ranks."""
    shared = functools.reduce(np.intersect1d, (steps.step[steps.sample] for steps in steady.values()))
    rows = {}
    for rank, steps in steady.items():
        order = np.argsort(steps.step, kind="stable")
        rows[rank] = order[np.searchsorted(steps.step[order], shared)]
    return rows
