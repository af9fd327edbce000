"""Processes that have ended, from three sources: the thread that waits for deaths, the process tree, the kernel's OOM killer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.processes.death_causes import DeathDesk, OomLedger
from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.probes.host.process.death_watch import ProcessDeath
from rn50_advisor.probes.host.process.process_tree import Member
from rn50_advisor.probes.host.sampler import Tick

_NEWS_TAKES_NS = 1_000_000_000


class Departures:
    """`post` is called in the desk's thread; all else belongs to the agent's, and `settle` may raise RecordingStopped."""

    def __init__(self, roster: Roster, post: Callable[[ProcessDeath | ProbeGap], None]) -> None:
        self._roster = roster
        self._oom = OomLedger()
        self._missed: deque[ProcessDeath] = deque()
        self._desk: DeathDesk | None = None
        try:
            self._desk = DeathDesk(post)
        except OSError as error:
            reason = f"the kernel gives no epoll: {error.strerror}"
            post(ProbeGap("deaths", "job", reason, "raise the limit of open files"))

    def start(self) -> None:
        if self._desk is not None:
            self._desk.start()

    def finish(self) -> None:
        """Returns once everything known to the desk has been posted. Processes that are first seen later are not waited for."""
        if self._desk is not None:
            self._desk.finish()
            self._desk = None

    def watch(self, pid: int) -> None:
        """The job's main process is waited for by the launcher."""
        if self._desk is not None and pid != self._roster.root_pid:
            self._desk.watch(pid)

    def note(self, tick: Tick, ended: Iterable[Member]) -> None:
        """Counts of OOM kills, and who is missing from the tree."""
        self._oom.note(tick.t_ns, tick.samples)
        for member in ended:
            if member.pid != self._roster.root_pid:
                seen = member.exit
                death = ProcessDeath(member.pid, tick.t_ns, seen.code if seen else None, seen.signal if seen else None)
                self._missed.append(death)

    def inferred(self, now_ns: int, *, last: bool = False) -> Iterator[ProcessDeath]:
        """Deaths inferred from the process tree. Yields them after a delay, so that epoll's exit status wins. `last`: all of them."""
        while self._missed and (last or self._missed[0].t_ns <= now_ns - _NEWS_TAKES_NS):
            yield self._missed.popleft()

    def suspect(self, death: ProcessDeath) -> None:
        self._oom.suspect(death)

    def settle(self, now_ns: int, *, last: bool = False) -> None:
        """Marks processes killed by the OOM killer, once their death is old enough to be judged; with `last`, at once."""
        for pid in self._oom.settle(now_ns, last=last):
            self._roster.mark_oom_killed(pid)
