"""Live ranks as the stack and stall watches see them, and their positions, read from their rings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.rings.ring_reader import CollectiveCall, NotARing, Position, RingReader
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import ERRORS_MAX

LABELLED = frozenset({"evaluation", "checkpoint", "ended"})  # the cause of this time is known


@dataclass(frozen=True, slots=True)
class Watched:
    """A living rank, as the agent sees it. `thread`: the kernel's id of the thread that trains, where it is known."""

    rank: int
    pid: int
    ring: Path
    ring_made_ns: int  # the same path may get another ring: exec keeps the pid
    steps: int
    outside_share: float
    p99_ns: int
    thread: int | None = None
    whole_p99_ns: int = 0  # with the evaluations and checkpoints in them
    asleep_share: float = 0.0  # of its steps: the model neither computed nor waited for a core
    uneven_share: float = 0.0  # of its steps: the forward or the backward pass beyond what the other lets expect
    group: int = 1  # ranks it exchanges with, itself included
    median_ns: int = 0  # of its steps
    on_gpu: bool = False

    def p99_at(self, at: Position) -> int:
        """The duration of its longest steps there, ns."""
        return self.whole_p99_ns if at.phase in LABELLED else self.p99_ns

    def trains(self, at: Position) -> bool:
        return self.steps > 0 and not at.ended


Place = tuple[Watched, Position]


class Places:
    """Reads the positions of ranks. For one thread; `keep` opens the rings of these ranks and closes all others."""

    def __init__(self) -> None:
        self._readers: dict[tuple[Path, int], RingReader] = {}

    def keep(self, watched: Iterable[Watched]) -> None:
        wanted = {(rank.ring, rank.ring_made_ns) for rank in watched}
        for key in [key for key in self._readers if key not in wanted]:
            self._readers.pop(key).close()
        for key in wanted - self._readers.keys():
            with contextlib.suppress(NotARing, OSError):
                self._readers[key] = RingReader(key[0])

    def position(self, rank: Watched) -> Position | None:
        """The rank's position; None also where its recorder has given up, since then its header stands still and not the rank."""
        with contextlib.suppress(KeyError, NotARing, OSError):
            at = self._readers[rank.ring, rank.ring_made_ns].position()
            return at if at.errors < ERRORS_MAX else None
        return None

    def collective(self, rank: Watched) -> CollectiveCall | None:
        """The collective that the rank began last."""
        with contextlib.suppress(KeyError, NotARing, OSError):
            return self._readers[rank.ring, rank.ring_made_ns].collective()
        return None

    def close(self) -> None:
        self.keep(())


def watched_ranks(ranks: Sequence[Follower], facts: Mapping[int, RankFacts]) -> tuple[Watched, ...]:
    """`facts`: each process's own facts, by pid."""
    return tuple(_watched(f, facts.get(f.pid, RankFacts()), alone=len(ranks) == 1) for f in ranks)


def _watched(follower: Follower, facts: RankFacts, *, alone: bool) -> Watched:
    recent, on_gpu = follower.recent, bool(facts.get("cuda"))
    return Watched(
        rank=follower.rank or 0,
        pid=follower.pid,
        ring=follower.reader.path,
        ring_made_ns=follower.reader.identity.created_ns,
        steps=recent.steps,
        outside_share=recent.outside_share,
        p99_ns=recent.p99_ns(),
        whole_p99_ns=recent.p99_ns(whole=True),
        thread=facts.get("main_thread"),
        uneven_share=recent.uneven_share(on_gpu=on_gpu),
        asleep_share=recent.asleep_share(alone=alone),
        group=facts.get("group_size") or 1,
        median_ns=recent.median_ns,
        on_gpu=on_gpu,
    )
