"""What stack samples of processes that make batches show: waits for one lock or server, and work repeated for each item."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine, SharedLock
from rn50_advisor.advisor.model.measures.input_measures import (
    LOADER_ASKING_SHARE,
    LOADER_LOCK_ERROR,
    LOADER_LOCK_SHARE,
    LOADER_REPEATED_ERROR,
    LOADER_REPEATED_SHARE,
    LOADER_TABLE_ERROR,
    LOADER_TABLE_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Event, Recording, events_of
from rn50_advisor.probes.documents.event_documents import SampleMaking

_FREQUENT: tuple[tuple[Literal["repeats", "table"], JobMeasure, JobMeasure], ...] = (
    ("repeats", LOADER_REPEATED_SHARE, LOADER_REPEATED_ERROR),
    ("table", LOADER_TABLE_SHARE, LOADER_TABLE_ERROR),
)
_SAMPLES_MIN = 6  # stack samples; with fewer, two that hit a short wait by chance are over a third


def making_sample_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Shares of stack samples that found a process waiting for a lock, asking a server, repeating a call for each item, or in a table."""
    found = Measured()
    samples, waiting = _samples(recording, steady)
    if len(samples) < _SAMPLES_MIN:
        why = f"{len(samples)} stacks of processes making samples were inspected"
        for measure in (LOADER_LOCK_SHARE, LOADER_REPEATED_SHARE, LOADER_TABLE_SHARE):
            found.missing[measure, JOB] = why
        return found
    asking = sum(bool(event.data.get("asks")) for event in samples) / len(samples)
    found[LOADER_LOCK_SHARE, JOB] = len(waiting) / len(samples)
    found[LOADER_LOCK_ERROR, JOB] = _share_error(len(waiting), len(samples))
    found[LOADER_ASKING_SHARE, JOB] = asking
    for kind, share, error in _FREQUENT:
        call = _frequent(samples, kind)
        seen = call.line.seen if call else 0
        found[share, JOB] = seen / len(samples)
        found[error, JOB] = _share_error(seen, len(samples))
    return found


def _share_error(seen: int, samples: int) -> float:
    """Standard error of a share, with one more sample of each kind: otherwise a few equal samples would have none."""
    smoothed = (seen + 1) / (samples + 2)
    return math.sqrt(smoothed * (1 - smoothed) / (samples + 2))


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


def frequent_call(
    recording: Recording, steady: Mapping[int, RankSteps], kind: Literal["repeats", "table"]
) -> FrequentCall | None:
    """The name under this key that most samples have, and their line."""
    return _frequent(_samples(recording, steady)[0], kind)


def _frequent(samples: Sequence[Event[SampleMaking]], kind: Literal["repeats", "table"]) -> FrequentCall | None:
    names = Counter(name for event in samples if (name := event.data.get(kind)))
    if not names:
        return None
    name = names.most_common(1)[0][0]
    line = _line([event for event in samples if event.data.get(kind) == name], len(samples))
    return FrequentCall(name, line) if line else None


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
