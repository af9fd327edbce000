"""Thins out stack profiles. A long run has thousands, each is read several times, and a few show where time goes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from rn50_advisor.advisor.model.recording import Event, Recording, data_of, events_of
from rn50_advisor.probes.documents.event_documents import StackProfile

# For all ranks together: a live job is analysed each second, and one profile takes 10 ms (sixty stacks of twenty frames).
_PROFILES_MAX = 40


def with_few_profiles(recording: Recording) -> Recording:
    """The same recording with some profiles of each rank, spread evenly over its time, and as many of the rare ones that show its sleep."""
    kinds = defaultdict[tuple[int | None, bool], list[Event[StackProfile]]](list)
    for event in events_of(recording.events, StackProfile):
        kinds[event.rank, any("awake" in row for row in event.data["stacks"])].append(event)
    each = max(1, _PROFILES_MAX // max(1, len(kinds)))
    if all(len(events) <= each for events in kinds.values()):
        return recording
    kept = {id(events[n]) for events in kinds.values() for n in _spread(len(events), each)}
    others = (e for e in recording.events if data_of(e, StackProfile) is None or id(e) in kept)
    return replace(recording, events=tuple(others))


def _spread(count: int, kept: int) -> list[int]:
    """At most `kept` of `count` indices, evenly spaced, including the last one."""
    return sorted({round(float(place)) for place in np.linspace(count - 1, 0, min(count, kept))})
