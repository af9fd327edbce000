"""Marks of whole steps, kept until there are enough of them to be read in one go.

After the compute of a step the caches hold the job's data, not our code: each of its six marks then costs 5-25 us, while in a tight loop
all six take 8. So a mark only notes what happened and when, and the account reads the notes of a step, or of several short ones, together.
Only the training thread writes here. What is noted and not yet read when the process is killed is lost: `NOTED_NS` of training at most,
or the step that runs.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .account import Account

FETCH, BATCH, BACKWARD, BACKWARD_END, OPTIMIZER, OPTIMIZER_END, COLLECTED = range(7)
WIDTH = 3  # what, when (ns), argument: samples, id of the optimizer, begin of a collection
# What follows a step's first fetch in a plain loop, up to the next step's.
USUAL = (BATCH, BACKWARD, BACKWARD_END, OPTIMIZER, OPTIMIZER_END, FETCH)
_USUAL = bytes(USUAL)
NOTED_NS = 200_000_000
# In steps from this length on the run-queue delay is read with the notes: so much waiting at once is told from what else delays a step.
DELAY_FROM_NS = 20_000_000
# What noting one mark takes after compute of 1 ms. Timing each one would cost as much again.
MARK_NS = 1_500


class Tape:
    """`marks` is one flat list, extended by a whole mark at a time: a collector or signal handler may run between any two bytecodes."""

    __slots__ = (
        "_at",
        "batch_size",
        "elements",
        "fetch",
        "inside_backward",
        "iterator",
        "limit",
        "loader",
        "marks",
        "on",
        "samples",
        "step",
        "thread",
        "words",
    )

    def __init__(self) -> None:
        self.marks: list[int] = []
        self.on = False
        self.forget()

    def forget(self) -> None:
        """Another process now, or another purpose: nothing is noted."""
        self.on = False
        self.marks.clear()
        self.thread = 0
        self.loader = -1  # the one DataLoader whose fetches are noted
        self.iterator = 0  # id of its iterator; one made anew at the same address has the tape read first
        self.batch_size: int | None = None
        self.elements = -1  # of the batch counted last, in its first tensor; -1 unknown
        self.samples = 0  # in that batch
        self.fetch: Any = None  # what stands for a noted fetch until its batch is there
        self.limit = 0
        self.inside_backward = False
        self.step = 0  # about: the account puts it right when it reads
        self.words: Any = None  # the live part of the ring's header
        self._at = 0

    def start(self, account: Account, steps: int, batch_size: int | None, iterator: int = 0) -> None:
        """Note the marks of so many steps, never of more, from the begin of a step. `iterator`: id of the one that feeds them."""
        self.marks.clear()  # one that a signal handler cut in two may have come after the last was read
        self.thread = account.thread
        self.iterator = iterator
        if self.loader != account.last_loader:
            self.elements = -1  # another loader's batches may hold as many elements in other samples
        self.loader = account.last_loader
        self.batch_size = batch_size
        self.fetch = (account, True, self.loader)
        self.step = account.step
        self.words = account.ring.words
        account.ring.phase(account.phase, account.step, account.since)  # the next fetch counts on from here
        self.limit = WIDTH * (account.fewest_marks * steps - 1)  # that of the mark which ends the last one
        self.inside_backward = False
        self.on = True

    def read_into(self, account: Account) -> None:
        """Give the account what was noted, each mark at its time. Noting is off afterwards."""
        began = perf_counter_ns()
        self.on = False
        noted = self.marks[:]
        self.marks.clear()
        for collection in account.garbage.take(account.thread):
            _insert(noted, *collection)
        if account.last_step_ns >= DELAY_FROM_NS:
            account.read_delay([noted[i + 1] for i in range(0, len(noted), WIDTH) if noted[i] == FETCH])
        clock, account.clock = account.clock, self._time
        account.replaying = True
        try:
            self._replay(account, noted)
        finally:
            account.clock = clock
            account.replaying = False
        account.ring.phase(account.phase, account.step, account.since)
        account.ring.cost(account.self_ns, account.errors)
        account.self_ns += perf_counter_ns() - began + len(noted) // WIDTH * MARK_NS

    def _replay(self, account: Account, noted: list[int]) -> None:
        kinds, times, arguments = bytes(noted[::WIDTH]), noted[1::WIDTH], noted[2::WIDTH]
        i = 0
        while i < len(kinds):
            end = i
            while kinds.startswith(_USUAL, end):
                end += len(_USUAL)
            if end > i and account.take_usual_steps(times[i:end], arguments[i:end]):
                i = end
                continue
            self._at = times[i]
            self._give(account, kinds[i], arguments[i])
            i += 1

    def _time(self) -> int:
        return self._at

    def _give(self, account: Account, what: int, argument: int) -> None:
        if what == FETCH:
            account.fetch_begin(self.loader, False, False)
        elif what == BATCH:
            account.fetch_end(True, argument)
        elif what == BACKWARD:
            account.backward_begin()
        elif what == BACKWARD_END:
            account.backward_end()
        elif what == OPTIMIZER:
            account.optimizer_begin(argument)
        elif what == OPTIMIZER_END:
            account.optimizer_end(argument)
        else:
            account.collected(argument, self._at)


def _insert(noted: list[int], began: int, ended: int) -> None:
    """A collection among the marks, at its end: most come after the last of them."""
    at = len(noted)
    while at and noted[at - WIDTH + 1] >= ended:
        at -= WIDTH
    noted[at:at] = (COLLECTED, ended, began)
