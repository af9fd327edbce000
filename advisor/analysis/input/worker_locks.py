"""Workers that wait for one another: at a lock of all of them, or for the one process that serves them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.input.sample_cost import SampleLine, SharedLock
from rn50_advisor.advisor.model.recording import Event, Recording

_LEAST = 6  # looks: of fewer, two that chanced upon a short wait are a third


def lock_values(
    recording: Recording, steady: Mapping[int, RankSteps], missing: dict[str, str]
) -> dict[tuple[str, str], float]:
    """The share of the looks that found a process waiting, and its standard error."""
    looks, waiting = _looks(recording, steady)
    if len(looks) < _LEAST:
        missing["loader.lock_share"] = f"{len(looks)} stacks of sample makers were looked at"
        return {}
    share = len(waiting) / len(looks)
    # by one more of each kind than was seen, or a few alike would be certain
    told = (len(waiting) + 1) / (len(looks) + 2)
    error = math.sqrt(told * (1 - told) / (len(looks) + 2))
    asking = sum(bool(event.data.get("asks")) for event in looks) / len(looks)
    return {
        ("loader.lock_share", JOB): share,
        ("loader.lock_error", JOB): error,
        ("loader.asking_share", JOB): asking,
    }


def shared_lock(recording: Recording, steady: Mapping[int, RankSteps]) -> SharedLock | None:
    """What most of those who waited waited for, and where."""
    looks, waiting = _looks(recording, steady)
    if not waiting:
        return None
    kind = Counter(str(event.data["awaits"]) for event in waiting).most_common(1)[0][0]
    return SharedLock(kind, _line(waiting, len(looks)))


def asking_line(recording: Recording, steady: Mapping[int, RankSteps]) -> SampleLine | None:
    """Where most of those stood who waited for a server's answer."""
    looks, _ = _looks(recording, steady)
    return _line([event for event in looks if event.data.get("asks")], len(looks))


def _line(found: Sequence[Event], looks: int) -> SampleLine | None:
    lines = Counter(
        (str(user.get("function")), str(user.get("file")), int(user.get("line") or 0))
        for event in found
        if isinstance(user := event.data.get("user"), Mapping)
    )
    if not lines:
        return None
    (function, file, line), seen = lines.most_common(1)[0]
    return SampleLine(function, file, line, seen, looks)


def _looks(recording: Recording, steady: Mapping[int, RankSteps]) -> tuple[list[Event], list[Event]]:
    """All that tell, and of them those that found a process waiting, within the steady steps."""
    begin = min((int(steps.start_ns.min()) for steps in steady.values()), default=0)
    end = max((int(steps.end_ns.max()) for steps in steady.values()), default=0)
    looks = [e for e in recording.events if e.kind == "making" and "awaits" in e.data and begin < e.t_ns < end]
    return looks, [event for event in looks if event.data["awaits"]]
