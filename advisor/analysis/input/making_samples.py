"""What stack samples of processes that make batches show: waits for one lock or server, and work repeated for each item."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rn50_advisor.advisor.analysis.stacks.source.item_source import repeated_for_items
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine, SharedLock
from rn50_advisor.advisor.model.measures.input_measures import (
    LOADER_ARRAY_ERROR,
    LOADER_ARRAY_SHARE,
    LOADER_ASKING_SHARE,
    LOADER_CHUNK_ITEMS,
    LOADER_CHUNKED_ERROR,
    LOADER_CHUNKED_SHARE,
    LOADER_COLLECTION_ERROR,
    LOADER_COLLECTION_SHARE,
    LOADER_LOCK_ERROR,
    LOADER_LOCK_SHARE,
    LOADER_REPEATED_ERROR,
    LOADER_REPEATED_SHARE,
    LOADER_TABLE_ERROR,
    LOADER_TABLE_SHARE,
)
from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import ChunkedArray, SampleMaking, StackProfile

Frequent = Literal["repeats", "table", "collection", "array", "chunked"]
_FREQUENT: tuple[tuple[Frequent, JobMeasure, JobMeasure], ...] = (
    ("array", LOADER_ARRAY_SHARE, LOADER_ARRAY_ERROR),
    ("chunked", LOADER_CHUNKED_SHARE, LOADER_CHUNKED_ERROR),
    ("collection", LOADER_COLLECTION_SHARE, LOADER_COLLECTION_ERROR),
    ("repeats", LOADER_REPEATED_SHARE, LOADER_REPEATED_ERROR),
    ("table", LOADER_TABLE_SHARE, LOADER_TABLE_ERROR),
)
_Name = TypeVar("_Name", bound=Hashable)
_PLACE_MIN = 0.1  # of the samples in repeated computing: other places of it are not worth a word
_SAMPLES_MIN = 6  # stack samples; with fewer, two that hit a short wait by chance are over a third
# The most independent samples that one profile is worth; its own lie 5 ms apart within 2 s. Measured on 19 profiles of seven jobs, with
# 61 to 311 samples in the loader each: shares of lines differed between profiles of one job as if these had 26 independent samples at
# least, 149 in the median.
_PROFILE_WORTH = 30.0


@dataclass(frozen=True, slots=True)
class MakingSample:
    """`count` stack samples that show the same of a batch being made. `weight`: number of independent samples that they are worth."""

    data: SampleMaking
    count: int = 1
    weight: float = 1.0


def making_sample_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Shares of stack samples that found a process waiting for a lock or a server, or in work that the user's line shows to be needless."""
    found = Measured()
    if arrays := chunked_arrays(recording):
        found[LOADER_CHUNK_ITEMS, JOB] = float(arrays[0]["chunk"][0])
    else:
        found.missing[LOADER_CHUNK_ITEMS, JOB] = (
            "no data set kept an array in chunks open when its first items had been made"
        )
    samples, waiting = _samples(recording, steady)
    whole = _weight(samples)
    if whole < _SAMPLES_MIN:
        why = f"{_count(samples)} stacks of processes making samples were inspected"
        for measure in (LOADER_LOCK_SHARE, *(share for _, share, _ in _FREQUENT)):
            found.missing[measure, JOB] = why
        return found
    found[LOADER_LOCK_SHARE, JOB] = _weight(waiting) / whole
    found[LOADER_LOCK_ERROR, JOB] = _share_error(_weight(waiting), whole)
    found[LOADER_ASKING_SHARE, JOB] = _weight([s for s in samples if s.data.get("asks")]) / whole
    for kind, share, error in _FREQUENT:
        seen = _weight(_repeating(recording, samples)) if kind == "repeats" else _weight(_frequent(samples, kind)[1])
        found[share, JOB] = seen / whole
        found[error, JOB] = _share_error(seen, whole)
    return found


def chunked_arrays(recording: Recording) -> tuple[ChunkedArray, ...]:
    """The largest chunks first: a chunk of labels may hold thousands, and is read once."""
    arrays = (event.data for event in events_of(recording.events, ChunkedArray))
    return tuple(sorted(arrays, key=lambda array: -math.prod(array["chunk"])))


def making_samples(recording: Recording, steady: Mapping[int, RankSteps]) -> Iterator[MakingSample]:
    """Stack samples within the steady steps that found a process making a batch: single ones, and those of training threads' profiles."""
    begin = min((int(steps.start_ns.min()) for steps in steady.values()), default=0)
    end = max((int(steps.end_ns.max()) for steps in steady.values()), default=0)
    for event in events_of(recording.events, SampleMaking):
        if begin < event.t_ns < end:
            yield MakingSample(event.data)
    for profile in events_of(recording.events, StackProfile):
        making = profile.data.get("making", ()) if begin < profile.t_ns < end else ()
        seen = sum(row["count"] for row in making)
        for row in making:
            yield MakingSample(row, row["count"], row["count"] * min(1.0, _PROFILE_WORTH / max(seen, 1)))


def _share_error(seen: float, samples: float) -> float:
    """Standard error of a share, with one more sample of each kind: otherwise a few equal samples would have none."""
    smoothed = (seen + 1) / (samples + 2)
    return math.sqrt(smoothed * (1 - smoothed) / (samples + 2))


def shared_lock(recording: Recording, steady: Mapping[int, RankSteps]) -> SharedLock | None:
    """The lock or server that most of the waiting workers waited for, and the line where they waited."""
    samples, waiting = _samples(recording, steady)
    kind = _heaviest((str(sample.data.get("awaits")), sample) for sample in waiting)
    return SharedLock(kind, _line(waiting, samples)) if kind else None


def asking_line(recording: Recording, steady: Mapping[int, RankSteps]) -> SampleLine | None:
    """The line where most workers waited for a server's answer."""
    samples, _ = _samples(recording, steady)
    return _line([sample for sample in samples if sample.data.get("asks")], samples)


def collecting_line(recording: Recording, steady: Mapping[int, RankSteps]) -> SampleLine | None:
    """The line where most processes that make samples called the garbage collector."""
    samples, _ = _samples(recording, steady)
    found = [sample for sample in samples if sample.data.get("collects")]
    if len(found) == 1:  # one long collection takes many samples of a profile
        found = [MakingSample(found[0].data)]
    return _line(found, samples)


def frequent_call(recording: Recording, steady: Mapping[int, RankSteps], kind: Frequent) -> FrequentCall | None:
    """The name under this key that most samples have, and their line."""
    samples, _ = _samples(recording, steady)
    name, found = _frequent(samples, kind)
    line = _line(found, samples)
    if not name or line is None:
        return None
    through = found[0].data.get("collection") if kind == "collection" else None
    whole = found[0].data.get("whole") if kind == "repeats" else None
    return FrequentCall(name, line, through["kind"] if through else None, whole=whole)


def repeated_call(recording: Recording, steady: Mapping[int, RankSteps]) -> FrequentCall | None:
    """What most samples repeat for each item: a call that opens, reads or builds something, or computing that uses nothing of the item."""
    samples, _ = _samples(recording, steady)
    placed = _computing(recording, samples)
    found = [sample for *_, sample in placed]
    if not found or _repeating(recording, samples) != found:
        return frequent_call(recording, steady, "repeats")
    name = _heaviest((name, sample) for name, _, sample in placed)
    whole, lines = _weight(found), list[SampleLine]()
    for place in dict.fromkeys(place for _, place, _ in placed):
        here = [sample for _, at, sample in placed if at == place]
        line = SampleLine(*place, _count(here), _count(samples))
        if _weight(here) >= _PLACE_MIN * whole:
            lines.append(line)
    first = _heaviest((place, sample) for each, place, sample in placed if each == name)
    lines.sort(key=lambda line: ((line.function, line.file, line.line) != first, -line.seen))
    return FrequentCall(str(name), lines[0], computes=True, more=tuple(lines[1:])) if lines else None


def _repeating(recording: Recording, samples: Sequence[MakingSample]) -> list[MakingSample]:
    """Samples in the most frequent repeated call, or those in repeated computing if they are more."""
    computing = [sample for *_, sample in _computing(recording, samples)]
    calling = _frequent(samples, "repeats")[1]
    return computing if _weight(computing) > _weight(calling) else calling


def _computing(
    recording: Recording, samples: Sequence[MakingSample]
) -> list[tuple[str, tuple[str, str, int], MakingSample]]:
    """(name, place, sample) for samples that found a process computing what is the same for all items."""
    found = ((repeated_for_items(recording.sources, sample.data), sample) for sample in samples)
    return [
        (each[0], (each[1].function, each[1].file, each[1].line), sample) for each, sample in found if each is not None
    ]


def _frequent(samples: Sequence[MakingSample], kind: Frequent) -> tuple[str | None, list[MakingSample]]:
    """The name under this key that most samples have, and these samples."""
    name = _heaviest((name, sample) for sample in samples if (name := _called(sample, kind)))
    return name, [sample for sample in samples if name and _called(sample, kind) == name]


def _called(sample: MakingSample, kind: Frequent) -> str | None:
    if kind != "collection":
        return sample.data.get(kind)
    through = sample.data.get("collection")
    return through["call"] if through else None


def _line(found: Sequence[MakingSample], samples: Sequence[MakingSample]) -> SampleLine | None:
    """The user's line of most of the samples found, and its number among all `samples`."""
    placed = [
        ((user["function"], user["file"], user["line"]), sample)
        for sample in found
        if (user := sample.data.get("user"))
    ]
    place = _heaviest(placed)
    if place is None:
        return None
    return SampleLine(*place, _count([sample for at, sample in placed if at == place]), _count(samples))


def _heaviest(named: Iterable[tuple[_Name, MakingSample]]) -> _Name | None:
    weights = defaultdict[_Name, float](float)
    for name, sample in named:
        weights[name] += sample.weight
    return max(weights, key=lambda name: weights[name], default=None)


def _weight(samples: Iterable[MakingSample]) -> float:
    return sum(sample.weight for sample in samples)


def _count(samples: Iterable[MakingSample]) -> int:
    return sum(sample.count for sample in samples)


def _samples(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[list[MakingSample], list[MakingSample]]:
    """Stack samples that show whether a process waits, and those of them that found one waiting."""
    samples = [sample for sample in making_samples(recording, steady) if "awaits" in sample.data]
    return samples, [sample for sample in samples if sample.data.get("awaits")]
