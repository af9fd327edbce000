"""The run along its time: slices for plots, and the stretches that have a name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.analysis.steady import RankSteps, warm_up_rows
from advisor.core.analysis import Stall
from advisor.core.recording import Recording
from advisor.core.report import Segment, TimelinePoint
from probes.rank.layout import SPAN_CODE

_SLICES = 240
_SEGMENTS_MAX = 200  # of each kind: a checkpoint every five steps is a rule's business, not a list's


def timeline(recording: Recording, steps: Mapping[int, RankSteps]) -> tuple[TimelinePoint, ...]:
    """Throughput of all ranks in equal slices from the first step to the last thing recorded."""
    if not steps:
        return ()
    origin = recording.meta.started_ns
    start = min(int(s.start_ns[0]) for s in steps.values())
    end = max(recording.meta.last_ns, *(int(s.end_ns[-1]) for s in steps.values()))
    longest = max(float(np.median(s.length / s.count)) for s in steps.values())
    slices = int(np.clip((end - start) / 1e9 / max(2 * longest, 0.25), 1, _SLICES))
    edges = np.linspace(start, end, slices + 1)
    samples = np.zeros(slices)
    counts = np.zeros(slices)
    lengths = np.zeros(slices)
    waits = np.zeros(slices)
    for s in steps.values():
        slot = np.clip(np.searchsorted(edges, s.end_ns, side="left") - 1, 0, slices - 1)
        np.add.at(samples, slot, s.columns["samples"])
        np.add.at(counts, slot, s.count)
        np.add.at(lengths, slot, s.length)
        np.add.at(waits, slot, s.columns["input_wait"])
    width = (end - start) / 1e9 / slices
    points = []
    for i in range(slices):
        seen = counts[i] > 0
        points.append(
            TimelinePoint(
                t_s=float((edges[i] - origin) / 1e9),
                samples_per_s=float(samples[i] / width) if samples.any() else None,
                step_s=float(lengths[i] / counts[i]) if seen else None,
                input_wait_share=float(waits[i] / lengths[i]) if seen and lengths[i] > 0 else None,
            )
        )
    return tuple(points)


def segments(recording: Recording, steps: Mapping[int, RankSteps], stalls: tuple[Stall, ...]) -> tuple[Segment, ...]:
    """Warm-up, epochs, evaluations, checkpoints and stalls of the first rank, in order of time."""
    if not steps:
        return ()
    rank = min(steps)
    own = steps[rank]
    origin = recording.meta.started_ns
    found = [*_warm_up(own, origin), *_epochs(own, origin), *_spans(recording, rank, origin)]
    found += [Segment("stall", s.t_s - s.stalled_s, s.t_s, label="no rank moved") for s in stalls]
    return tuple(sorted(found, key=lambda segment: (segment.start_s, segment.end_s)))


def _warm_up(own: RankSteps, origin: int) -> list[Segment]:
    rows = min(warm_up_rows(own), own.step.size)
    if rows == 0:
        return []
    first, last = own.start_ns[0], own.end_ns[rows - 1]
    return [
        Segment(
            "warm-up",
            (int(first) - origin) / 1e9,
            (int(last) - origin) / 1e9,
            int(own.step[0]),
            int(own.step[rows - 1]),
        )
    ]


def _epochs(own: RankSteps, origin: int) -> list[Segment]:
    starts = np.flatnonzero(own.epoch_start)
    if starts.size < 2:
        return []
    ends = np.append(starts[1:], own.step.size)
    return [
        Segment(
            "epoch",
            (int(own.start_ns[a]) - origin) / 1e9,
            (int(own.end_ns[b - 1]) - origin) / 1e9,
            int(own.step[a]),
            int(own.step[b - 1]),
            f"epoch {number}",
        )
        for number, (a, b) in enumerate(zip(starts, ends, strict=True))
    ][-_SEGMENTS_MAX:]


def _spans(recording: Recording, rank: int, origin: int) -> list[Segment]:
    table = recording.spans.get(rank)
    if table is None:
        return []
    found: list[Segment] = []
    for kind in ("evaluation", "checkpoint"):
        rows = table[table["label"] == SPAN_CODE[kind]][-_SEGMENTS_MAX:]
        found += [
            Segment(
                kind,
                (int(row["t_start_ns"]) - origin) / 1e9,
                (int(row["t_end_ns"]) - origin) / 1e9,
                int(row["step"]),
                int(row["step"]),
            )
            for row in rows
        ]
    return found
