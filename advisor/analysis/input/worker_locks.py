"""Detects workers that wait for one another: at a shared lock, or for one process that serves them all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.input.sample_cost import SampleLine, SharedLock
from rn50_advisor.advisor.model.measures.input_measures import LOADER_ASKING_SHARE, LOADER_LOCK_ERROR, LOADER_LOCK_SHARE
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Event, Recording, events_of
from rn50_advisor.probes.documents.event_documents import SampleMaking

_SAMPLES_MIN = 6  # stack samples; with fewer, two that hit a short wait by chance are over a third


def lock_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Share of stack samples that found a process waiting, its standard error, and the share that found one asking a server."""
    found = Measured()
    samples, waiting = _samples(recording, steady)
    if len(samples) < _SAMPLES_MIN:
        found.missing[LOADER_LOCK_SHARE, JOB] = f"{len(samples)} stacks of processes making samples were inspected"
        return found
    share = len(waiting) / len(samples)
    # one more sample of each kind: otherwise a few equal samples would have no error
    smoothed = (len(waiting) + 1) / (len(samples) + 2)
    error = math.sqrt(smoothed * (1 - smoothed) / (len(samples) + 2))
    asking = sum(bool(event.data.get("asks")) for event in samples) / len(samples)
    found[LOADER_LOCK_SHARE, JOB] = share
    found[LOADER_LOCK_ERROR, JOB] = error
    found[LOADER_ASKING_SHARE, JOB] = asking
    return found


def shared_lock(recording: Recording, steady: Mapping[int, RankSteps]) -> SharedLock | None:
    """The lock or server that most of the waiting workers waited for, and the line where they waited."""
    samples, waiting = _samples(recording, steady)
    if not waiting:
        return None
    kind = Counter(str(event.data.get("awaits")) for event in waiting).most_common(1)[0][0]
    return SharedLock(kind, _line(waiting, len(samples)))


def asking_line(recording: Recording, steady: Mapping[int, RankSteps]) -> SampleLine | None:
    """The line where most workers waited for a server's answer."""
    samples, _ = _samples(recording, steady)
    return _line([event for event in samples if event.data.get("asks")], len(samples))


def _line(found: Sequence[Event[SampleMaking]], samples: int) -> SampleLine | None:
    lines = Counter(
        (user["function"], user["file"], user["line"]) for event in found if (user := event.data.get("user"))
    )
    if not lines:
        return None
    (function, file, line), seen = lines.most_common(1)[0]
    return SampleLine(function, file, line, seen, samples)


def _samples(
    recording: Recording, steady: Mapping[int, RankSteps]
) -> tuple[list[Event[SampleMaking]], list[Event[SampleMaking]]]:
    """Stack samples within the steady steps that show whether a process waits, and those of them that found one waiting."""
    begin = min((int(steps.start_ns.min()) for steps in steady.values()), default=0)
    end = max((int(steps.end_ns.max()) for steps in steady.values()), default=0)
    making = events_of(recording.events, SampleMaking)
    samples = [event for event in making if "awaits" in event.data and begin < event.t_ns < end]
    return samples, [event for event in samples if event.data.get("awaits")]
