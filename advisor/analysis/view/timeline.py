"""The run over time: slices for plots, and labelled segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.attribution import CLEAR_MARGIN, StepAttribution, waiting
from rn50_advisor.advisor.analysis.steps.cold_start import ColdEpoch, cold_epoch, run_ahead_rows
from rn50_advisor.advisor.analysis.steps.restarts import start_segments
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, deep_steps, warm_up_rows
from rn50_advisor.advisor.model.analysis import Stall
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Segment, TimelinePoint
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.rank.layout import SPAN_CODE

Array = NDArray[np.float64]

_SLICES_MAX = 240
_STEP_S_MIN = 1e-6  # of a row whose clock did not move
_STEPS_AHEAD_MAX = 4  # by which the host is ahead of its GPU: what one queues without waiting for a result
# Share of a usual step. A shorter extra wait of a first fetch is invisible on a line for the whole run.
_EPOCH_START_SHARE = 0.5
_LONGER_RATIO_MIN = 2.0  # the first rank with more than the longest rank's time over this represents all ranks
_SEGMENTS_MAX = 200  # of each kind; a checkpoint every five steps is for a rule to report, not for a list


def timeline(
    recording: Recording,
    steps: Mapping[int, RankSteps],
    steady: Mapping[int, RankSteps],
    accounts: StepAttribution | None,
) -> tuple[TimelinePoint, ...]:
    """Throughput of all ranks in equal time slices from the first step to the end of the recording, and the late rank of steady steps."""
    if not steps:
        return ()
    origin = recording.meta.started_ns
    start = min(int(s.start_ns[0]) for s in steps.values())
    end = max(recording.meta.last_ns, *(int(s.end_ns[-1]) for s in steps.values()))
    longest = max(float(np.median(s.length / s.count)) for s in steps.values())
    slices = int(np.clip((end - start) / 1e9 / max(2 * longest, 0.25), 1, _SLICES_MAX))
    edges = np.linspace(start, end, slices + 1)
    samples = np.zeros(slices)
    counts = np.zeros(slices)
    lengths = np.zeros(slices)
    waits = np.zeros(slices)
    on_gpus = {p.rank for p in recording.processes if p.role == "rank" and recording.facts.get(p.pid, {}).get("cuda")}
    for rank, s in steps.items():
        slot = np.clip(np.searchsorted(edges, s.end_ns, side="left") - 1, 0, slices - 1)
        begin_s, end_s = (s.start_ns - start) / 1e9, (s.end_ns - start) / 1e9
        if rank in on_gpus:
            begin_s, end_s = on_the_gpu(begin_s, end_s, s.count)
        samples += spread(s.columns["samples"], begin_s, end_s, (edges - start) / 1e9)
        np.add.at(counts, slot, s.count)
        np.add.at(lengths, slot, s.length)
        np.add.at(waits, slot, s.columns["input_wait"])
    width = (end - start) / 1e9 / slices
    late = late_ranks(accounts, steady, edges)
    points = []
    for i in range(slices):
        seen = counts[i] > 0
        late_rank, late_s = late.get(i, (None, None))
        points.append(
            TimelinePoint(
                t_s=float((edges[i] - origin) / 1e9),
                samples_per_s=float(samples[i] / width) if samples.any() else None,
                step_s=float(lengths[i] / counts[i]) if seen else None,
                input_wait_share=float(waits[i] / lengths[i]) if seen and lengths[i] > 0 else None,
                late_rank=late_rank,
                late_s=late_s,
            )
        )
    return tuple(points)


def on_the_gpu(begin_s: Array, end_s: Array, count: Array) -> tuple[Array, Array]:
    """When the GPU does these steps: after it has waited, the host queues some steps in no time, and then waits for the GPU again.

    A step shorter than the median leaves the GPU behind by the difference, a longer one lets it catch up.
    """
    usual_s = float(np.median((end_s - begin_s) / count))
    balance = np.cumsum(usual_s * count - (end_s - begin_s))
    behind = balance - np.minimum(np.minimum.accumulate(balance), 0.0)
    behind = np.minimum(behind, _STEPS_AHEAD_MAX * usual_s)
    return begin_s + np.concatenate([[0.0], behind[:-1]]), end_s + behind


def spread(amounts: Array, start_s: Array, end_s: Array, edges_s: Array) -> Array:
    """The part of all amounts in each slice, if each arrives evenly between its start and its end. `amounts`: rows, or quantities x rows.

    Counted where a step ends, samples of a slice that sees two ends instead of one look like a burst. Rows may overlap: folded ones do.
    """
    end_s = np.maximum(end_s, start_s + _STEP_S_MIN)
    rates = amounts / (end_s - start_s)
    return np.diff(_ramps(rates, start_s, edges_s) - _ramps(rates, end_s, edges_s))


def _ramps(rates: Array, begin_s: Array, at_s: Array) -> Array:
    """The sum of `rate * max(0, t - begin)` of all rows, at each time."""
    order = np.argsort(begin_s, kind="stable")
    rates, begin_s = rates[..., order], begin_s[order]
    none = np.zeros((*rates.shape[:-1], 1))
    slopes = np.concatenate([none, np.cumsum(rates, axis=-1)], axis=-1)
    offsets = np.concatenate([none, np.cumsum(rates * begin_s, axis=-1)], axis=-1)
    begun = np.searchsorted(begin_s, at_s, side="left")
    return np.asarray(slopes[..., begun] * at_s - offsets[..., begun])


def segments(recording: Recording, steps: Mapping[int, RankSteps], stalls: tuple[Stall, ...]) -> tuple[Segment, ...]:
    """Segments sorted by time: evaluations, checkpoints, stalls, and the first rank's warm-up, run-ahead, epochs, starts, deep windows."""
    if not steps:
        return ()
    rank = min(steps)
    own = steps[rank]
    origin = recording.meta.started_ns
    cold = cold_epoch(steps)
    begun = own.keep(own.step < cold.next_step) if cold is not None else own  # a cold epoch is no warm-up
    found = [*_warm_up(begun, origin), *_epochs(own, origin, cold), *_epoch_starts(own, origin)]
    found += start_segments(steps, origin)
    found += _spans(recording, rank, origin)
    found += _deep_windows(recording, rank, origin)
    found += [Segment("stall", s.t_s - s.stalled_s, s.t_s, label="no rank moved") for s in stalls if not s.others_moved]
    return tuple(sorted(found, key=lambda segment: (segment.start_s, segment.end_s)))


def _stretch(own: RankSteps, origin: int, first: int, last: int) -> tuple[float, float, int, int]:
    """Begin and end (seconds), first and last step of these rows."""
    return (
        (int(own.start_ns[first]) - origin) / 1e9,
        (int(own.end_ns[last]) - origin) / 1e9,
        int(own.step[first]),
        int(own.step[last]),
    )


def _warm_up(own: RankSteps, origin: int) -> list[Segment]:
    rows = min(warm_up_rows(own), own.step.size)
    if rows == 0:
        return []
    found = [Segment("warm-up", *_stretch(own, origin, 0, rows - 1))]
    ahead = run_ahead_rows(own, rows)
    if ahead:
        label = f"{ahead} steps on batches made during the warm-up"
        found.append(Segment("run-ahead", *_stretch(own, origin, rows, rows + ahead - 1), label))
    return found


def _epochs(own: RankSteps, origin: int, cold: ColdEpoch | None) -> list[Segment]:
    starts = np.flatnonzero(own.epoch_start)
    if starts.size < 2:
        return []
    ends = np.append(starts[1:], own.step.size)
    # a live screen sees only the latest rows, a row of several steps may begin several epochs, and each start numbers its own
    counted = own.step[0] == 0 and bool((own.count[starts] == 1).all() and (np.diff(own.step) > 0).all())
    labels = [f"epoch {number}" if counted else "epoch" for number in range(starts.size)]
    if cold is not None:
        waits = f"{duration(cold.wait_s)} of waiting for input per step, later {duration(cold.later_wait_s)}"
        labels[0] += f", cold: {waits}"
    return [
        Segment("epoch", *_stretch(own, origin, a, b - 1), label)
        for label, a, b in zip(labels, starts.tolist(), ends.tolist(), strict=True)
    ][-_SEGMENTS_MAX:]


def _epoch_starts(own: RankSteps, origin: int) -> list[Segment]:
    """The first fetch of each epoch, if it waits noticeably longer than a usual one."""
    first = own.epoch_start & (own.count == 1)
    if not first.any() or first.all():
        return []
    waits = own.columns["input_wait"]
    usual = float(np.median((waits / own.count)[~own.epoch_start])) if (~own.epoch_start).any() else 0.0
    least = usual + _EPOCH_START_SHARE * float(np.median(own.length / own.count))
    found = []
    for row in np.flatnonzero(first & (waits >= least)).tolist():
        begin_s, _, number, _ = _stretch(own, origin, row, row)
        wait_s, start_s = float(waits[row]), float(own.columns["loader_start"][row])
        label = f"first fetch of an epoch: {duration(wait_s)}"
        if start_s > 0:
            label += f", {duration(start_s)} of it to start the loader"
        found.append(Segment("epoch start", begin_s, begin_s + wait_s, number, number, label))
    return found[-_SEGMENTS_MAX:]


def _deep_windows(recording: Recording, rank: int, origin: int) -> list[Segment]:
    """Steps in which this rank or one that it waited for ran under torch's profiler. They explain a dip in the plot."""
    rows = recording.steps[rank]
    looked_into = rows[np.isin(rows["step"], deep_steps(recording)) & (rows["count"] == 1)]
    found: list[Segment] = []
    for row in np.sort(looked_into, order="step"):
        first, last = int(row["step"]), int(row["step"])
        start_s, end_s = ((int(row[name]) - origin) / 1e9 for name in ("t_start_ns", "t_end_ns"))
        if found and found[-1].last_step == first - 1:
            start_s, first = found[-1].start_s, found.pop().first_step or 0
        found.append(Segment("deep window", start_s, end_s, first, last, "profiled with torch's profiler"))
    return found


def _spans(recording: Recording, first: int, origin: int) -> list[Segment]:
    """Evaluations and checkpoints of a rank that spends much time in them: one rank, not always the first, may evaluate for all."""
    found: list[Segment] = []
    for kind in ("evaluation", "checkpoint"):
        of_kind = {rank: rows[rows["label"] == SPAN_CODE[kind]] for rank, rows in sorted(recording.spans.items())}
        spent_ns = {rank: int((rows["t_end_ns"] - rows["t_start_ns"]).sum()) for rank, rows in of_kind.items()}
        longest = max(spent_ns.values(), default=0)
        rank = next((rank for rank, ns in spent_ns.items() if ns > longest / _LONGER_RATIO_MIN), first)
        found += [
            Segment(
                kind,
                (int(row["t_start_ns"]) - origin) / 1e9,
                (int(row["t_end_ns"]) - origin) / 1e9,
                int(row["step"]),
                int(row["step"]),
                "" if rank == first else f"{kind} on rank {rank}",
            )
            for row in of_kind.get(rank, ())[-_SEGMENTS_MAX:]
        ]
    return found


# The straggler of each slice of the run: the rank that kept the others waiting most.
def late_ranks(
    accounts: StepAttribution | None, steady: Mapping[int, RankSteps], edges_ns: NDArray[np.float64]
) -> dict[int, tuple[int, float]]:
    """(rank, seconds per step that the others waited for it) by slice. Slices without a late rank are left out."""
    if accounts is None or len(accounts.turns) < 2:
        return {}
    ranks = sorted(accounts.turns)
    # the first turn begins in a step before it, which is unknown
    turns = np.stack([accounts.turns[rank] for rank in ranks])[:, 1:]
    ends = steady[ranks[0]].end_ns[accounts.rows[ranks[0]]][1:]
    slot = np.clip(np.searchsorted(edges_ns, ends, side="left") - 1, 0, edges_ns.size - 2)
    kept = np.zeros((len(ranks), edges_ns.size - 1))
    np.add.at(kept, (turns.argmax(axis=0), slot), waiting(turns))
    kept /= np.maximum(np.bincount(slot, minlength=edges_ns.size - 1), 1)
    worst = kept.argmax(axis=0)
    return {
        int(i): (ranks[worst[i]], float(kept[worst[i], i]))
        for i in np.flatnonzero(kept.max(axis=0) >= CLEAR_MARGIN * accounts.step_s)
    }
