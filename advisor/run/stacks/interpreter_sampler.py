"""Samples training threads that sleep inside the model: whether they wait for the GIL, and which thread holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.advisor.run.stacks.stack_rows import described
from rn50_advisor.probes.documents.event_documents import InterpreterHolder, InterpreterWaitSamples
from rn50_advisor.probes.host.process.interpreter_lock import InterpreterSight, NoInterpreter
from rn50_advisor.probes.host.procfs import parse_stat
from rn50_advisor.probes.host.stacks.process_stacks import ThreadStack

WORTH_SHARE = 0.03  # share of the step: ranks that sleep less are not sampled; a finding starts at 5 %
# A sample takes 0.05 ms. Samples of a burst are further apart than most waits: the GIL switches every 5 ms.
_BURST = 6
_APART_S = 0.015
_DENSE_SAMPLES = 400  # at every poll; then one burst in some seconds keeps up with a job that changes
_SELDOM_S = 5.0
_SAMPLES_PER_EVENT = 30
# Samples that found it waiting before a dump of all stacks, which shows the holder, is worth its cost.
_WAITING_SAMPLES_MIN = 3
_WAITING_SHARE_MIN = 0.03
_CATCH_SAMPLES_MAX = 20  # samples until it is seen waiting, so that a dump comes at that moment
_CATCH_APART_S = 0.003

Dump = Callable[[int], tuple[tuple[ThreadStack, ...] | ProbeGap, float]]


class WaitingThread(Protocol):
    def waits(self) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that sleeps inside the model. `thread`: the kernel's id of the one that trains."""

    rank: int
    pid: int
    thread: int


@dataclass(slots=True)
class _Tally:
    sight: WaitingThread
    samples: int = 0
    waiting: int = 0
    posted: tuple[int, int] = (0, 0)  # samples and waits in events so far
    posted_ns: int = field(default_factory=time.perf_counter_ns)
    seen_s: float = -1e9


class InterpreterSampler:
    """`pause` waits for some seconds and returns True to stop; `dump` returns the stacks and the CPU seconds that it took."""

    def __init__(
        self,
        budget: StackBudget,
        *,
        dump: Dump,
        post: Callable[[AnyEvent | ProbeGap], None],
        pause: Callable[[float], bool],
        sight: Callable[[int, int], WaitingThread] = InterpreterSight,
    ) -> None:
        self._budget = budget
        self._dump = dump
        self._post = post
        self._pause = pause
        self._sight = sight
        self._tallies: dict[Suspect, _Tally] = {}
        self._refused = False

    def look(self, suspects: Sequence[Suspect]) -> None:
        """Takes a burst of samples of due ranks, and a dump of one that was found waiting."""
        for gone in [suspect for suspect in self._tallies if suspect not in suspects]:
            self._let_go(gone)
        now_s = time.monotonic()
        due = [suspect for suspect in suspects if self._due(suspect, now_s)]
        for n in range(_BURST if due else 0):
            if n and self._pause(_APART_S):
                return
            due = [suspect for suspect in due if self._count(suspect) is not None]
        for suspect in due:
            tally = self._tallies[suspect]
            if tally.samples - tally.posted[0] >= _SAMPLES_PER_EVENT:
                self._post_counts(suspect)
        self._dump_holder(due)

    def close(self) -> None:
        for suspect in list(self._tallies):
            self._let_go(suspect)

    def _due(self, suspect: Suspect, now_s: float) -> bool:
        if self._refused:
            return False
        if suspect not in self._tallies:
            try:
                self._tallies[suspect] = _Tally(self._sight(suspect.pid, suspect.thread))
            except (OSError, NoInterpreter) as error:
                self._refuse(suspect, error)
                return False
        tally = self._tallies[suspect]
        if tally.samples >= _DENSE_SAMPLES and now_s - tally.seen_s < _SELDOM_S:
            return False
        tally.seen_s = now_s
        return True

    def _count(self, suspect: Suspect) -> bool | None:
        """Takes one sample of a suspect; None if it can no longer be sampled."""
        tally = self._tallies.get(suspect)
        if tally is None:
            return None
        try:
            waits = tally.sight.waits()
        except (OSError, NoInterpreter) as error:
            self._let_go(suspect)
            self._refuse(suspect, error)
            return None
        tally.samples += 1
        tally.waiting += waits
        return waits

    def _refuse(self, suspect: Suspect, error: Exception) -> None:
        """A thread that has just ended is no refusal."""
        if isinstance(error, ProcessLookupError) or not _lives(suspect.pid):
            return
        self._refused = True
        reason = f"whether a thread waits for the interpreter lock cannot be seen: {getattr(error, 'strerror', None) or error}"
        hint = "run as the job's user; in a container: --cap-add SYS_PTRACE"
        self._post(ProbeGap("interpreter", f"pid:{suspect.pid}", reason, hint))

    def _post_counts(self, suspect: Suspect) -> None:
        tally, now_ns = self._tallies[suspect], time.perf_counter_ns()
        samples, waiting = tally.samples - tally.posted[0], tally.waiting - tally.posted[1]
        if samples:
            data: InterpreterWaitSamples = {"since_ns": tally.posted_ns, "looks": samples, "waiting": waiting}
            self._post(happened(InterpreterWaitSamples, data, t_ns=now_ns, pid=suspect.pid, rank=suspect.rank))
        tally.posted, tally.posted_ns = (tally.samples, tally.waiting), now_ns

    def _let_go(self, suspect: Suspect) -> None:
        self._post_counts(suspect)
        self._tallies.pop(suspect).sight.close()

    def _dump_holder(self, due: Sequence[Suspect]) -> None:
        for suspect in due:
            tally = self._tallies[suspect]
            often = tally.waiting >= max(_WAITING_SAMPLES_MIN, _WAITING_SHARE_MIN * tally.samples)
            if often and self._budget.allows(suspect.rank, time.monotonic()) and self._caught(suspect):
                stacks, cpu_s = self._dump(suspect.pid)
                holder = None if isinstance(stacks, ProbeGap) else holder_of(stacks, suspect.thread)
                self._budget.spent(suspect.rank, time.monotonic(), cpu_s, hit=holder is not None)
                if holder is not None:
                    now_ns = time.perf_counter_ns()
                    self._post(happened(InterpreterHolder, holder, t_ns=now_ns, pid=suspect.pid, rank=suspect.rank))
                return

    def _caught(self, suspect: Suspect) -> bool:
        """Samples until one finds it waiting. They are biased, so they are not counted."""
        tally = self._tallies[suspect]
        for _ in range(_CATCH_SAMPLES_MAX):
            try:
                if tally.sight.waits():
                    return True
            except (OSError, NoInterpreter):
                return False
            if self._pause(_CATCH_APART_S):
                return False
        return False


def holder_of(stacks: Sequence[ThreadStack], training: int) -> InterpreterHolder | None:
    """The other thread that held the GIL, and its line; None if the training thread or no thread held it."""
    owner = next((s for s in stacks if s.owns_gil and s.thread_id != training), None)
    if owner is None or (owner.thread_id is None and owner.main):
        return None
    return {"thread": owner.name, **described(owner)}


def _lives(pid: int) -> bool:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).state not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False
