"""One process with a ring: who it is, its position, and its recent steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from rn50_advisor.advisor.analysis.steps.recent_steps import RecentSteps
from rn50_advisor.advisor.run.rings.ring_reader import Position, RingReader, Row


@dataclass(slots=True)
class Follower:
    """One living process with a ring. `rank` None: a worker whose rank is not known yet."""

    pid: int
    role: str
    parent_pid: int
    rank: int | None
    reader: RingReader
    position: Position
    first_seen_ns: int
    made_cpu_ns: int = 0  # of a worker's batches
    recent: RecentSteps = field(default_factory=RecentSteps)
    held: dict[int, list[Row]] = field(default_factory=dict)
    held_rows: int = 0
