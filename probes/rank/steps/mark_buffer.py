"""The buffer for marks of whole steps, which are processed together.

After a step's compute the CPU caches hold the job's data, not our code: each of its six marks then costs several times what it does in a
tight loop. So a mark only appends its time to a list of its kind, the cheapest operation in Python. The account processes the marks of
one step, or of several short ones, together. Only the training thread writes here, and autograd's threads run hooks of its backward
while it waits. Unprocessed marks are lost if the process is killed: at most `BUFFERED_NS` of training, or the running step.

Fewer marks in most short steps were tried: no clock and no list in the wrappers of backward pass and optimizer, only the phase in the
header. That saved a third of the cost in steps of 1.9 ms and nothing measurable at 5 ms, where entering a wrapper and one store cost most.
In loops of so short steps that marks exceed the budget (`mark_costs`), most steps are only counted; meanwhile the header shows no phase.

Every list is bounded: fetches, backward passes and optimizer steps each check their own number, so the buffer is also flushed soon when
the loop changes (stops using its loader, say) and keeps only one of these kinds.
"""

from __future__ import annotations

from itertools import repeat
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import PHASE_BITS, RANK_SLOTS
from ..ring import WORDS
from ..workers.batch_size import count_samples
from .counted_steps import UsualStep, are_plain, placed
from .mark_costs import MarkCost, ThinnedMarks, TimedWords
from .plain_steps import take_counted_steps, take_plain_steps
from .step_account import PLAIN_STEP_MARKS
from .step_phases import BACKWARD as IN_BACKWARD
from .step_phases import CLIP, FORWARD, GAP, START
from .step_phases import OPTIMIZER as IN_OPTIMIZER

if TYPE_CHECKING:
    from .step_account import Account

# Marks of a plain loop's step in order; the step ends with the next step's fetch. Garbage collections are no marks but are read with them.
BATCH, BACKWARD, BACKWARD_END, OPTIMIZER, OPTIMIZER_END, FETCH, COLLECTED = range(7)
BUFFERED_NS = 200_000_000
# From this step length on, the run-queue delay is read at each flush: in steps this long it can be separated from other delays.
DELAY_FROM_NS = 20_000_000
_TIMED_EVERY = 16  # starts: after one of so many, each mark is timed from its clock to its end
_COUNTED_SHARE = 0.5  # of the cost of a step's marks, in a counted step
_WORTH_STEPS = 8  # whole steps in a stretch of counted ones: marks of the step that interrupts it are only placed
SHORT_STRETCHES_MAX = 4  # stretches with fewer; after so many the loop calls something in each step that must be marked
_SEEN = {FORWARD: 1, IN_BACKWARD: 2, CLIP: 3, IN_OPTIMIZER: 4}  # marks of a step until then
_NEVER = 1 << 62
# Maximum marks of one kind. Each may end a step, and all buffered steps are written at once: at most half a ring, so that the agent
# loses none (unless a single step has that many marks). All marks take about 2 MB.
_RECORDS_MAX = RANK_SLOTS // 2
MARKS_MAX = 8192


class MarkBuffer:
    """Marks of whole steps. `marks`: times in ns by kind.

    Each mark is one `append`, so a signal handler that raises between bytecodes leaves no partial mark.
    """

    __slots__ = (
        "_asked",
        "_at",
        "_first_samples",
        "_starts",
        "_timed",
        "account",
        "batch_size",
        "counted_at",
        "counting",
        "elements",
        "fetch",
        "fetches_max",
        "inside_backward",
        "iterator",
        "loader",
        "mark_cost",
        "marks",
        "marks_max",
        "on",
        "optimizer",
        "others",
        "phase",
        "samples",
        "short_stretches",
        "sizes",
        "step",
        "thinned",
        "thread",
        "updates_max",
        "usual",
        "words",
    )

    def __init__(self) -> None:
        self.marks: tuple[list[int], ...] = tuple([] for _ in range(PLAIN_STEP_MARKS))
        self.sizes: dict[int, int] = {}  # batches whose size differs from the previous one: their times and samples
        self.others: dict[int, int] = {}  # updates by unusual optimizers: start times and ids
        self.on = False
        self.forget()

    def forget(self) -> None:
        """Resets to not buffering, in another process or for another role."""
        self.on = False
        self._clear()
        self.account: Any = None
        self.thread = 0
        self.loader = -1  # the DataLoader whose fetches are buffered
        self.iterator = 0  # id of its iterator; the buffer is flushed before a new iterator can have the same id
        self.batch_size: int | None = None
        self.elements = -1  # elements in the first tensor of the batch counted last; -1 unknown
        self.samples = self._first_samples = 0  # samples in that batch, and in the last one before buffering began
        self.optimizer: int | None = None  # id of the usual optimizer
        self.fetch: Any = None  # placeholder of a buffered fetch until its batch arrives
        # full at this many fetches or, without a loader, optimizer ends
        self.fetches_max = self.updates_max = 0
        self.marks_max = 0  # if the loop has changed, also full at this many backward passes or optimizer starts
        self.inside_backward = False
        self.step = 0  # approximate; the account corrects it when it reads
        self.words: Any = None  # the live part of the ring's header
        # steps are only counted: the start of the running one, or the end of its update, ns << PHASE_BITS; else 0
        self.counted_at = 0
        self.counting = False  # they are, and the buffer is not full
        self.short_stretches = 0  # the latest stretches of counted steps that something interrupted early
        self._asked = 0  # steps to buffer until the flush
        self.phase = GAP  # the phase they are in
        self.usual = UsualStep()
        self.thinned = ThinnedMarks()
        self.mark_cost = MarkCost()
        self._timed: TimedWords | None = None
        self._starts = 0
        self._at = 0

    def _clear(self) -> None:
        for times in self.marks:
            times.clear()
        self.sizes.clear()
        self.others.clear()

    def start(
        self, account: Account, steps: int, batch_size: int | None, iterator: int = 0, *, counted: bool = False
    ) -> None:
        """Starts buffering the marks of at most `steps` steps, at the start of one. `iterator`: id of the one that feeds them.

        `counted`: only their boundaries.
        """
        self._clear()  # a mark that a signal handler interrupted may have been added after the last reading
        self.account = account
        self.thread = account.thread
        self.iterator = iterator
        if self.loader != account.last_loader:
            self.elements = -1  # another loader's batches may have as many elements with a different number of samples
        self.loader = account.last_loader
        self.batch_size = batch_size
        self._first_samples = self.samples
        self.optimizer = account.last_optimizer
        self.fetch = (account, True, self.loader)
        self.step = account.step
        # storing into a list takes a fraction of the time
        self.words = [0] * WORDS if counted else account.ring.words
        self.counted_at = account.since << PHASE_BITS if counted else 0
        self.counting, self.phase = counted, GAP  # no mark of this step was seen
        self._asked = steps
        self._starts += not counted
        self._timed = None
        if not counted and self._starts % _TIMED_EVERY == 1:
            self.words = self._timed = TimedWords(self.words)
        # the next fetch continues from here
        account.ring.phase(START if counted else account.phase, account.step, account.since)
        rounds = account.fewest_rounds * steps
        usual = max(account.fewest_marks, PLAIN_STEP_MARKS)  # at least the marks of any kind
        self.marks_max = min(usual * (steps + 1), max(_RECORDS_MAX, 2 * usual), MARKS_MAX)
        # the end of the last step's final update goes to the account and is not buffered
        self.fetches_max, self.updates_max = (
            min(rounds, self.marks_max),
            self.marks_max if self.loader >= 0 else min(rounds - 1, self.marks_max),
        )
        self.inside_backward = False
        self.on = True

    def mark_full(self) -> None:
        """Stops buffering. Also called in other threads; the training thread flushes the buffer at its next mark."""
        self.counting = False
        self.fetches_max = self.updates_max = self.marks_max = 0

    def update_ended_elsewhere(self) -> None:
        """Called when an update ends in autograd's thread. That thread must not flush a full buffer; the training thread does next."""
        if self.inside_backward and len(self.marks[OPTIMIZER_END]) < len(self.marks[OPTIMIZER]):
            self.marks[OPTIMIZER_END].append(perf_counter_ns())
        self.mark_full()

    def note_batch_size(self, now: int, batch: Any, elements: int = -1) -> None:
        """Records the size of the batch fetched `now`, which differs from the previous one's."""
        self.sizes[now] = self.samples = count_samples(batch, self.batch_size)
        self.elements = elements

    def flush_into(self, account: Account) -> None:
        """Replays the marks to the account, each at its time. Buffering is off afterwards."""
        began = perf_counter_ns()
        self.on = self.counting = False
        buffered, sizes, others = [times[:] for times in self.marks], self.sizes.copy(), self.others.copy()
        self._clear()
        since, marked = account.since, sum(map(len, buffered))
        if self._timed is not None:
            self.mark_cost.measured(self._timed.times, account.last_step_ns)
        bounds = buffered[FETCH] if self.loader >= 0 else buffered[OPTIMIZER_END]
        starts = [since, *bounds]
        collections = account.garbage.take(account.thread)
        if account.last_step_ns >= DELAY_FROM_NS:
            account.read_delay(buffered[FETCH])
        samples = self._samples(buffered[BATCH], sizes)
        clock, account.clock = account.clock, self._time
        account.replaying = True
        try:
            if self.counted_at:
                samples = self._samples(starts, sizes)
                taken, buffered = self._take_counted(account, starts, buffered, samples, collections)
                marked = int(taken * (PLAIN_STEP_MARKS if self.loader >= 0 else PLAIN_STEP_MARKS - 2) * _COUNTED_SHARE)
                enough = min(_WORTH_STEPS, self._asked - 1)  # the last one may end with a mark of its own
                self.short_stretches = 0 if taken >= enough else self.short_stretches + 1
                samples, taken = samples[taken:], 0
            else:
                if not others:
                    self.usual.learn(starts, buffered)
                taken = take_plain_steps(account, [] if others else _plain_times(buffered), samples, collections)
            optimizers = [others.get(at, self.optimizer) for at in buffered[OPTIMIZER][taken:]]
            arguments: dict[int, list[Any]] = {BATCH: samples[taken:], OPTIMIZER: optimizers}
            self._give_each(account, [times[taken:] for times in buffered], arguments, collections)
        finally:
            account.clock = clock
            account.replaying = False
        account.ring.phase(account.phase, account.step, account.since)
        account.ring.cost(account.self_ns, account.errors)
        cost = perf_counter_ns() - began + marked * self.mark_cost.ns(account.last_step_ns)
        account.self_ns += cost
        self.thinned.add(cost, account.since - since, account.step)

    def _take_counted(
        self,
        account: Account,
        starts: list[int],
        buffered: list[list[int]],
        samples: list[int],
        collections: list[tuple[int, int]],
    ) -> tuple[int, list[list[int]]]:
        """Gives whole steps to the account at once. Returns their number, and the likely marks of all others."""
        bounds, updates, taken = starts[1:], buffered[OPTIMIZER_END], 0
        if are_plain(starts, updates, bounds):
            total = sum(updates[: len(bounds)]) - sum(starts[: len(bounds)])
            parts = self.usual.split(total)
            taken = take_counted_steps(account, bounds, parts, sum(samples[: len(bounds)]), collections)
        fed = self.loader >= 0
        others = placed(
            self.usual,
            starts[taken:],
            updates[taken:],
            bounds[taken:],
            seen=_SEEN.get(self.phase, 0),
            now=perf_counter_ns(),
        )
        if not fed:
            others[BATCH] = []
        return taken, [*others, bounds[taken:] if fed else []]

    def _samples(self, came: list[int], sizes: dict[int, int]) -> list[int]:
        samples, found = self._first_samples, []
        for at in came:
            samples = sizes.get(at, samples)
            found.append(samples)
        return found

    def _give_each(
        self,
        account: Account,
        buffered: list[list[int]],
        arguments: dict[int, list[Any]],
        collections: list[tuple[int, int]],
    ) -> None:
        """Replays unusual steps mark by mark, in order of time. `arguments`: lists parallel to the times, for kinds with an argument."""
        marks = [
            mark for kind, times in enumerate(buffered) for mark in zip(times, repeat(kind), arguments.get(kind, times))
        ]
        marks += [(ended, COLLECTED, began) for began, ended in collections]
        begun: list[int] = []  # running optimizers, the innermost last; one that raised has no end mark
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


def _plain_times(buffered: list[list[int]]) -> list[int]:
    """Times of the marks of all whole plain steps, in order; empty if these or later marks came in another order."""
    steps = min(map(len, buffered))
    times = [of_kind[n] for n in range(steps) for of_kind in buffered]
    later = [of_kind[steps] for of_kind in buffered if len(of_kind) > steps]
    return times if times == sorted(times) and (not times or min(later, default=_NEVER) > times[-1]) else []
