"""Marks of whole steps, kept until there are enough of them to be read in one go.

After the compute of a step the caches hold the job's data, not our code: each of its six marks then costs several times what it does in a
tight loop. So a mark only notes when it happened, in a list of its kind: `append` of one number is the least that Python can do. The
account reads the notes of a step, or of several short ones, together. Only the training thread writes here, and hooks of its backward that
autograd runs in threads of its own while that one waits. What is noted and not yet read when the process is killed is lost: `NOTED_NS` of
training at most, or the step that runs.

No kind grows for ever: a fetch, a backward and a step of an optimizer each find the tape full by their own number, so that a loop which
changes into another (leaves its loader and trains on, say) is read soon after, whichever of them it still has.
"""

from __future__ import annotations

from itertools import repeat
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .layout import RANK_SLOTS
from .step_account import USUAL_MARKS
from .workers.batch_size import count_samples

if TYPE_CHECKING:
    from .step_account import Account

# Those of a plain loop's step, in their order: it ends with the next one's fetch. A collection is no mark, but is read among them.
BATCH, BACKWARD, BACKWARD_END, OPTIMIZER, OPTIMIZER_END, FETCH, COLLECTED = range(7)
NOTED_NS = 200_000_000
# In steps from this length on the run-queue delay is read with the notes: so much waiting at once is told from what else delays a step.
DELAY_FROM_NS = 20_000_000
# What noting one mark takes in steps of 1 ms; in longer ones, up to 50 ms, more as the root of their length: `tests/bench/marks.py` found
# some 1.8, 4.5 and 10 us at 1, 5 and 50 ms. Timing each one would cost as much again.
MARK_NS = 1_800
_MARK_GROWS_UNTIL_NS = 50_000_000
_NEVER = 1 << 62
# Of one kind. Each may end a step, and the steps of a tape are written at once: not more than half a ring, so that the agent loses none of
# them, unless a single step has so many marks; and never more than some 2 MB of numbers in all.
_RECORDS_MAX = RANK_SLOTS // 2
MARKS_MAX = 8192


class Tape:
    """`marks` are times, ns, by kind. One `append` each: a signal handler that raises between two bytecodes leaves no half of a mark."""

    __slots__ = (
        "_at",
        "_first_samples",
        "account",
        "batch_size",
        "elements",
        "fetch",
        "fetches",
        "inside_backward",
        "iterator",
        "loader",
        "marks",
        "most",
        "on",
        "optimizer",
        "others",
        "samples",
        "sizes",
        "step",
        "thread",
        "updates",
        "words",
    )

    def __init__(self) -> None:
        self.marks: tuple[list[int], ...] = tuple([] for _ in range(USUAL_MARKS))
        self.sizes: dict[int, int] = {}  # batches of other sizes than the one before: when they came, and their samples
        self.others: dict[int, int] = {}  # updates by other optimizers than the usual one: when they began, and its id
        self.on = False
        self.forget()

    def forget(self) -> None:
        """Another process now, or another purpose: nothing is noted."""
        self.on = False
        self._clear()
        self.account: Any = None
        self.thread = 0
        self.loader = -1  # the one DataLoader whose fetches are noted
        self.iterator = 0  # id of its iterator; one made anew at the same address has the tape read first
        self.batch_size: int | None = None
        self.elements = -1  # of the batch counted last, in its first tensor; -1 unknown
        self.samples = self._first_samples = 0  # in that batch, and in the one before the first that is noted
        self.optimizer: int | None = None  # id of the usual one
        self.fetch: Any = None  # what stands for a noted fetch until its batch is there
        # it is full at so many fetches or, where no loader feeds the loop, ends of an optimizer
        self.fetches = self.updates = 0
        self.most = 0  # and, where the loop has become another, at so many backward passes or begins of an optimizer
        self.inside_backward = False
        self.step = 0  # about: the account puts it right when it reads
        self.words: Any = None  # the live part of the ring's header
        self._at = 0

    def _clear(self) -> None:
        for times in self.marks:
            times.clear()
        self.sizes.clear()
        self.others.clear()

    def start(self, account: Account, steps: int, batch_size: int | None, iterator: int = 0) -> None:
        """Note the marks of so many steps, never of more, from the begin of a step. `iterator`: id of the one that feeds them."""
        self._clear()  # one that a signal handler cut in two may have come after the last was read
        self.account = account
        self.thread = account.thread
        self.iterator = iterator
        if self.loader != account.last_loader:
            self.elements = -1  # another loader's batches may hold as many elements in other samples
        self.loader = account.last_loader
        self.batch_size = batch_size
        self._first_samples = self.samples
        self.optimizer = account.last_optimizer
        self.fetch = (account, True, self.loader)
        self.step = account.step
        self.words = account.ring.words
        account.ring.phase(account.phase, account.step, account.since)  # the next fetch counts on from here
        rounds = account.fewest_rounds * steps
        usual = max(account.fewest_marks, USUAL_MARKS)  # more than there are of any one kind
        self.most = min(usual * (steps + 1), max(_RECORDS_MAX, 2 * usual), MARKS_MAX)
        # the end of the update that closes the last step is the account's: it is not noted
        self.fetches, self.updates = (
            min(rounds, self.most),
            self.most if self.loader >= 0 else min(rounds - 1, self.most),
        )
        self.inside_backward = False
        self.on = True

    def fill(self) -> None:
        """No more notes on this one. Also called in other threads: the one that trains reads it at its next mark."""
        self.fetches = self.updates = self.most = 0

    def end_elsewhere(self) -> None:
        """An update ends in a thread of autograd's, which may not read a tape that is full: the one that trains does so next."""
        if self.inside_backward and len(self.marks[OPTIMIZER_END]) < len(self.marks[OPTIMIZER]):
            self.marks[OPTIMIZER_END].append(perf_counter_ns())
        self.fill()

    def count(self, now: int, batch: Any, elements: int = -1) -> None:
        """The batch that came `now` is not as large as the one before."""
        self.sizes[now] = self.samples = count_samples(batch, self.batch_size)
        self.elements = elements

    def read_into(self, account: Account) -> None:
        """Give the account what was noted, each mark at its time. Noting is off afterwards."""
        began = perf_counter_ns()
        self.on = False
        noted, sizes, others = [times[:] for times in self.marks], self.sizes.copy(), self.others.copy()
        self._clear()
        collections = account.garbage.take(account.thread)
        if account.last_step_ns >= DELAY_FROM_NS:
            account.read_delay(noted[FETCH])
        samples = self._samples(noted[BATCH], sizes)
        clock, account.clock = account.clock, self._time
        account.replaying = True
        try:
            taken = account.take_usual_steps([] if others else _usual_times(noted), samples, collections)
            optimizers = [others.get(at, self.optimizer) for at in noted[OPTIMIZER][taken:]]
            arguments: dict[int, list[Any]] = {BATCH: samples[taken:], OPTIMIZER: optimizers}
            self._give_each(account, [times[taken:] for times in noted], arguments, collections)
        finally:
            account.clock = clock
            account.replaying = False
        account.ring.phase(account.phase, account.step, account.since)
        account.ring.cost(account.self_ns, account.errors)
        account.self_ns += perf_counter_ns() - began + sum(map(len, noted)) * mark_ns(account.last_step_ns)

    def _samples(self, came: list[int], sizes: dict[int, int]) -> list[int]:
        samples, found = self._first_samples, []
        for at in came:
            samples = sizes.get(at, samples)
            found.append(samples)
        return found

    def _give_each(
        self,
        account: Account,
        noted: list[list[int]],
        arguments: dict[int, list[Any]],
        collections: list[tuple[int, int]],
    ) -> None:
        """What is no usual step, in the order in which it came. `arguments`: of these kinds, parallel to their times."""
        marks = [
            mark for kind, times in enumerate(noted) for mark in zip(times, repeat(kind), arguments.get(kind, times))
        ]
        marks += [(ended, COLLECTED, began) for began, ended in collections]
        begun: list[int] = []  # optimizers, the innermost last; one that raised has told of no end
        for self._at, kind, argument in sorted(marks):
            if kind == FETCH:
                account.fetch_begin(self.loader, False, False)
            elif kind == BATCH:
                account.fetch_end(True, argument)
            elif kind == BACKWARD:
                account.backward_begin()
            elif kind == BACKWARD_END:
                account.backward_end()
            elif kind == OPTIMIZER:
                begun.append(argument)
                account.optimizer_begin(argument)
            elif kind == OPTIMIZER_END:
                account.optimizer_end(begun.pop() if begun else self.optimizer or 0)
            else:
                account.collected(argument, self._at)

    def _time(self) -> int:
        return self._at


def mark_ns(step_ns: int) -> int:
    """What noting one mark takes, ns, in steps of this length."""
    return int(MARK_NS * (min(step_ns, _MARK_GROWS_UNTIL_NS) / 1e6) ** 0.5)


def _usual_times(noted: list[list[int]]) -> list[int]:
    """Of a plain loop's whole steps, mark by mark, as many as there are; empty where their marks or later ones came in another order."""
    steps = min(map(len, noted))
    times = [of_kind[n] for n in range(steps) for of_kind in noted]
    later = [of_kind[steps] for of_kind in noted if len(of_kind) > steps]
    return times if times == sorted(times) and (not times or min(later, default=_NEVER) > times[-1]) else []
