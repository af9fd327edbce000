"""Finds change points at which steps became slower permanently or for long, with the rank, the phase, and what else changed then.

The typical step of a stretch is its median, so evaluations, checkpoints, partial batches and first batches of epochs do not affect it. At a
change, two levels fit the run better than one, and almost every stretch after it is slower than almost every one before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import Window, cpu_values, process_by_rank, quota_values
from rn50_advisor.advisor.analysis.steps.phases import OWN_PHASES, split_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.steps.work_changes import more_work
from rn50_advisor.advisor.model.analysis import Coincidence, SpeedChange
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Segment
from rn50_advisor.advisor.model.statistics import weighted_quantile

Array = NDArray[np.float64]

_STRETCHES_MAX = 60  # stretches that levels are fitted to: 1,800 medians
_BIN_STEPS_MIN = 3  # steps; the median of three ignores one outlier
_SIDE_MIN = 4  # stretches on each side of a change
_LEVELS_MAX = 4  # enough for a temporary slowdown and one more change
_CHANGE_RATIO_MIN = 1.05  # a smaller ratio is no change; the rule requires more
# Least share of pairs in which the stretch after the change is slower than the one before it. FACTS: belief above 90 %.
_SEPARATION_MIN = 0.9
_SHOWN, _SHOWN_SHARE = 1.1, 0.03  # least ratio and lost share of a change that plots of the run mark
_ALIKE = (0.25, 2.5)  # growth of a phase over the growth of the whole step


def speed_changes(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[SpeedChange, ...]:
    """Every lasting change to slower steps, in order of time. A slower level that ends has `until_s`."""
    if not steady:
        return ()
    longest = max(steady.values(), key=lambda steps: float(steps.length.sum()))
    bins = _bins(longest)
    if bins is None:
        return ()
    at, level_s = bins
    edges = [0, *_cuts(level_s), level_s.size]
    levels = [float(np.median(level_s[a:b])) for a, b in itertools.pairwise(edges)]
    width = longest.step.size // level_s.size + 1
    cuts = zip((int(at[cut]) for cut in edges[1:-1]), itertools.pairwise(levels), strict=True)
    rows = [int(at[0]), *(_refined(longest, row, width, pair) for row, pair in cuts), longest.step.size]
    found = []
    for n, (was, now) in enumerate(itertools.pairwise(levels)):
        if now < _CHANGE_RATIO_MIN * was:
            continue
        # fluctuations below half the rise end neither side of the change, nor does a second rise
        half = (now - was) / 2
        first = next((m + 1 for m in range(n, -1, -1) if abs(levels[m] - was) > half), 0)
        last = next((m for m in range(n + 1, len(levels)) if levels[m] < now - half), len(levels))
        usual_s = float(np.median(level_s[edges[first] : edges[n + 1]]))
        span = (rows[first], rows[n + 1], rows[last])
        if now < _CHANGE_RATIO_MIN * was * _larger(longest, span):
            continue
        found.append(_change(recording, steady, longest, span, levels_s=(usual_s, now), ended=last < len(levels)))
    return tuple(found)


def _larger(steps: RankSteps, rows: tuple[int, int, int]) -> float:
    """Ratio of samples per step after the change to before it, at least 1: a smaller batch does not explain a slowdown."""
    before, after = (steps.columns["samples"][a:b].sum() / steps.count[a:b].sum() for a, b in itertools.pairwise(rows))
    return max(1.0, float(after / before)) if before > 0 else 1.0


def change_segments(changes: tuple[SpeedChange, ...], end_s: float) -> tuple[Segment, ...]:
    """The slower stretches, for plots of the run."""
    return tuple(
        Segment(
            "change",
            c.t_s,
            end_s if c.until_s is None else c.until_s,
            c.step,
            None,
            f"{c.after_s / c.before_s:.2g}× slower",
        )
        for c in changes
        if c.after_s >= _SHOWN * c.before_s and c.lost_share >= _SHOWN_SHARE
    )


def usual_rows(steps: RankSteps) -> NDArray[np.bool_]:
    """Mask of rows with usual steps: those without evaluation, checkpoint or first batch of an epoch."""
    aside = steps.columns["evaluation"] + steps.columns["checkpoint"]
    return ~steps.epoch_start & (aside <= 0.01 * steps.length)


def _bins(steps: RankSteps) -> tuple[NDArray[np.int64], Array] | None:
    """(first row of each stretch, its median step) for stretches of equally many usual rows; None if there are too few."""
    usual = np.flatnonzero(usual_rows(steps))
    count = min(_STRETCHES_MAX, usual.size // _BIN_STEPS_MIN)
    if count < 2 * _SIDE_MIN:
        return None
    length, weight = (steps.length / steps.count)[usual], steps.count[usual]
    edges = np.linspace(0, usual.size, count + 1).astype(np.int64)
    level = np.array([weighted_quantile(length[a:b], weight[a:b], 0.5) for a, b in itertools.pairwise(edges)])
    return usual[edges[:-1]], level


def _cuts(level_s: Array) -> list[int]:
    """The stretches at which levels change: the best fit of a few levels, with neighbours joined that are not clearly apart."""
    if float(np.percentile(level_s, 90)) < _CHANGE_RATIO_MIN * float(np.percentile(level_s, 10)):
        return []
    cuts = _best_fit(level_s)
    while cuts:
        edges = [0, *cuts, level_s.size]
        gaps = [_apart(level_s[a:b], level_s[b:c]) for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)]
        weakest = int(np.argmin(gaps))
        if gaps[weakest] >= _SEPARATION_MIN:
            break
        del cuts[weakest]
    return cuts


def _best_fit(level_s: Array) -> list[int]:
    """The cuts into _LEVELS_MAX levels of at least _SIDE_MIN stretches each that minimise the distances to the levels' medians."""
    size = level_s.size
    misfit = np.full((size + 1, size + 1), np.inf)
    for width in range(_SIDE_MIN, size + 1):  # all parts of one width at once
        parts = np.lib.stride_tricks.sliding_window_view(level_s, width)
        first = np.arange(len(parts))
        misfit[first, first + width] = np.abs(parts - np.median(parts, axis=1, keepdims=True)).sum(axis=1)
    best, back = misfit[0], []
    for _ in range(min(_LEVELS_MAX, size // _SIDE_MIN) - 1):
        total = best[:, None] + misfit
        back.append(total.argmin(axis=0))
        best = total.min(axis=0)
    cuts: list[int] = []
    for origin in reversed(back):
        cuts.insert(0, int(origin[cuts[0] if cuts else size]))
    return cuts


def _apart(before: Array, after: Array) -> float:
    """Separation of two groups of stretches: share of pairs in which one is above the other; 0 if their levels are alike."""
    old, new = float(np.median(before)), float(np.median(after))
    if max(old, new) < _CHANGE_RATIO_MIN * min(old, new):
        return 0.0
    slower = float((after[:, None] > before[None, :]).mean())
    return max(slower, 1.0 - slower)


def _refined(steps: RankSteps, row: int, width: int, levels_s: tuple[float, float]) -> int:
    """The first row of the new level, near the stretch in which it was found."""
    first, last = max(0, row - width), min(steps.step.size, row + width)
    length = (steps.length / steps.count)[first:last]
    excess = np.abs(length - levels_s[0]) - np.abs(length - levels_s[1])
    # rows before the cut should be near the old level, those from it on near the new one
    return first + int(np.argmin(np.append(0.0, np.cumsum(excess))[:-1]))


def _change(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    longest: RankSteps,
    rows: tuple[int, int, int],
    *,
    levels_s: tuple[float, float],
    ended: bool,
) -> SpeedChange:
    """Describes the slower interval between `rows[1]` and `rows[2]`, compared with the one from `rows[0]` before it."""
    times = [int(longest.start_ns[row]) for row in rows[:2]] + [
        int(longest.end_ns[min(rows[2], longest.step.size) - 1])
    ]
    levels = _levels(recording, steady, (times[0], times[1], times[2]))
    rank, phase, part_s = _culprit({r: {n: now - was for n, (was, now) in p.items()} for r, p in levels.items()})
    seen = coincidences(recording, (times[0], times[1]), (times[1], times[2]))
    named = {int(c.scope[5:]) for c in seen if c.scope.startswith("rank:")}
    if rank is None and len(named) == 1 and len(steady) > 1:
        rank = named.pop()  # its quota shows it, whichever rank waited in which phase
    process = process_by_rank(recording.processes).get(longest.rank if rank is None else rank)
    facts = {} if process is None else recording.facts.get(process.pid, {})
    total_s = float(longest.length.sum())
    count = float(longest.count[rows[1] : rows[2]].sum())
    return SpeedChange(
        step=int(longest.step[rows[1]]),
        t_s=(times[1] - recording.meta.started_ns) / 1e9,
        until_s=(times[2] - recording.meta.started_ns) / 1e9 if ended else None,
        before_s=levels_s[0],
        after_s=levels_s[1],
        steps_before=float(longest.count[rows[0] : rows[1]].sum()),
        steps_after=count,
        lasted_s=(times[2] - times[1]) / 1e9,
        lost_share=min(1.0, (levels_s[1] - levels_s[0]) * count / max(total_s, 1e-9)),
        rank=rank,
        phase=phase,
        phase_s=part_s,
        alike=rank is None and all(_alike(named, levels_s[1] / levels_s[0]) for named in levels.values()),
        coincidences=seen,
        work=more_work(facts, int(longest.step[rows[1]]), levels_s, phase),
    )


def _levels(
    recording: Recording, steady: Mapping[int, RankSteps], times: tuple[int, int, int]
) -> dict[int, dict[str, tuple[float, float]]]:
    """By rank and phase: seconds per step before and after the change. Waiting for others is `comm_exposed`."""
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for rank, steps in steady.items():
        parts = split_of(recording, steps, ranks=len(steady))
        phases = dict(parts.phases)
        if parts.exposed is not None:
            phases["comm_exposed"] = parts.exposed
        usual = usual_rows(steps)
        before = usual & (steps.end_ns > times[0]) & (steps.end_ns <= times[1])
        after = usual & (steps.start_ns >= times[1]) & (steps.end_ns <= times[2])
        if before.any() and after.any():
            # means, because a quota delays a different phase in each step and no phase's median shows it
            found[rank] = {
                name: (_per_step(values, steps, before), _per_step(values, steps, after))
                for name, values in phases.items()
            }
    return found


def _per_step(values: Array, steps: RankSteps, rows: NDArray[np.bool_]) -> float:
    return float(values[rows].sum() / steps.count[rows].sum())


def _alike(named: Mapping[str, tuple[float, float]], ratio: float) -> bool:
    """True if every large phase of the model grew about as much as the whole step. That is how a machine slows down, not a program."""
    whole = sum(was for was, _ in named.values())
    large = [(was, now) for name, (was, now) in named.items() if name in ("forward", "backward") and was >= 0.1 * whole]
    shares = [(now / was - 1.0) / (ratio - 1.0) for was, now in large]
    return len(shares) > 1 and min(shares) >= _ALIKE[0] and max(shares) <= _ALIKE[1]


def _culprit(grown: Mapping[int, Mapping[str, float]]) -> tuple[int | None, str, float]:
    """(the rank that slows the others, or None if all slowed down; the phase that grew most; its growth in seconds per step)."""
    if not grown:
        return None, "", 0.0
    own = {rank: sum(max(0.0, named.get(p, 0.0)) for p in OWN_PHASES) for rank, named in grown.items()}
    worst = max(own, key=lambda rank: own[rank])
    others = [seconds for rank, seconds in own.items() if rank != worst]
    alone = bool(others) and float(np.median(others)) <= 0.5 * own[worst]
    wire = min((named.get("comm_exposed", 0.0) for named in grown.values()), default=0.0)
    if len(grown) > 1 and wire > own[worst]:
        return None, "comm_exposed", wire
    phase = max(OWN_PHASES, key=lambda p: grown[worst].get(p, 0.0))
    return (worst if alone else None), phase, grown[worst].get(phase, 0.0)


# name, unit, and the least change to report: in its own unit, and as a share of the larger value
_MOVES = (
    ("cpu.other_cores", "cores", 0.3, 0.3),
    ("cpu.job_cores", "cores", 0.3, 0.25),
    ("cpu.steal_share", "share", 0.03, 0.3),
    ("quota.throttled_s_per_s", "s/s", 0.05, 0.3),
    ("disk.read_mb_per_s", "MB/s", 2.0, 0.5),
    ("disk.write_mb_per_s", "MB/s", 2.0, 0.5),
    ("disk.busy_share", "share", 0.15, 0.3),
    ("gpu.sm_clock_mhz", "MHz", 30.0, 0.04),
    ("gpu.temp_c", "°C", 6.0, 0.08),
    ("gpu.power_w", "W", 15.0, 0.1),
    ("mem.available_gb", "GB", 0.5, 0.3),
)


def coincidences(
    recording: Recording, before_ns: tuple[int, int], after_ns: tuple[int, int]
) -> tuple[Coincidence, ...]:
    """Host metrics that changed between the two intervals, largest change first."""
    was, now = (_circumstances(recording, Window(recording, *span)) for span in (before_ns, after_ns))
    found = []
    for name, unit, least, share in _MOVES:
        for scope in sorted({s for n, s in was if n == name} & {s for n, s in now if n == name}):
            old, new = was[name, scope], now[name, scope]
            if abs(new - old) >= max(least, share * max(abs(old), abs(new))):
                found.append(Coincidence(name, scope, old, new, unit))
    return tuple(found)


def _circumstances(recording: Recording, window: Window) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {(name, "job"): value for name, value in cpu_values(window).items()}
    for rank, process in process_by_rank(recording.processes).items():
        found.update({(name, f"rank:{rank}"): value for name, value in quota_values(window, process).items()})
    for name, metric, scale in (
        ("disk.read_mb_per_s", "disk.read_bytes", 1e-6),
        ("disk.write_mb_per_s", "disk.write_bytes", 1e-6),
        ("disk.busy_share", "disk.busy_s", 1.0),
    ):
        rates = {scope: window.rate(metric, scope) for scope in window.scopes(metric)}
        found.update({(name, scope): scale * rate for scope, rate in rates.items() if rate is not None})
    for name in ("gpu.sm_clock_mhz", "gpu.temp_c", "gpu.power_w"):
        levels = {scope: window.level(name, scope) for scope in window.scopes(name)}
        found.update({(name, scope): level for scope, level in levels.items() if level is not None})
    available = window.level("mem.available_bytes", "host")
    if available is not None:
        found["mem.available_gb", "host"] = available / 1e9
    return found
