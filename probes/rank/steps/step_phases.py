"""The steps of a training thread: its current phase, and the sums of each step, written at the step's end.

Marks come from the patched functions (`patches`); `step_account` interprets them. Each mark ends the chunk of time since the last one and
assigns it to exactly one phase, so the phases of a step sum to its length.
"""

from __future__ import annotations

from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from ..garbage import Garbage
from ..layout import FLAG_CLOCKED, FLAG_NO_LOADER, FLAG_TAIL, KIND_SPAN, KIND_STEP, PHASE_CODE, PHASES, SPAN_CODE
from ..thread_clocks import system_time_ns
from .autograd_nodes import StepNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..ring import Ring

START = PHASE_CODE["start"]
INPUT = PHASE_CODE["input_wait"]
FORWARD = PHASE_CODE["forward"]
BACKWARD = PHASE_CODE["backward"]
CLIP = PHASE_CODE["clip"]
OPTIMIZER = PHASE_CODE["optimizer"]
GAP = PHASE_CODE["gap"]
EVALUATION = PHASE_CODE["evaluation"]
CHECKPOINT = PHASE_CODE["checkpoint"]
ENDED = PHASE_CODE["ended"]

# A CPU clock is a system call: 0.6 us in a tight loop, 10-30 us with caches cold after compute, ten per step. Clocks are read once in
# this period, and more often at first, to cover short runs.
CLOCKED_EVERY_NS = 500_000_000
CLOCKED_FIRST_NS = 100_000_000
FIRST_CLOCKED = 30  # steps
CLOCKED_EVERY_MAX = 512  # for a loop of nearly empty steps
_DELAYS_MAX = 1024  # run-queue delays whose steps are not written yet: those of two flushes
LONG_GC_NS = 5_000_000  # longer collections get their own line on the timeline


class Fetching:
    """Sums of fetch times inside the training process (num_workers=0)."""

    __slots__ = ("batches", "blocks", "cpu_ns", "delay_ns", "wall_ns")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.batches = self.wall_ns = self.cpu_ns = self.delay_ns = self.blocks = 0


class Steps:
    """Sums chunks of time by phase, in wall time and in some steps also in CPU time."""

    def __init__(
        self,
        *,
        thread: int,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = thread_time_ns,
        system_clock: Callable[[], int] = system_time_ns,
        garbage: Garbage | None = None,
    ) -> None:
        self.thread = thread
        self.garbage = garbage or Garbage()
        self.clock = clock
        self.cpu_clock = cpu_clock
        self.system_clock = system_clock
        self.ring: Any = None  # a Ring; no check for None at every mark
        self.run_delay: Any = None  # callable: run-queue delay of the training thread so far, ns
        self.on_step: Callable[[int], None] | None = None  # callable(step index) after a step was closed
        self.graph_nodes: Callable[[], int] | None = None  # number of autograd nodes created so far in this thread
        self.nodes = StepNodes()
        self.step = 0
        self.self_ns = 0  # the recorder's own cost since the process started
        self.errors = 0
        self.fetching = Fetching()
        self._evaluation_began = 0
        self._evaluated = 0
        self.self_at_step = 0
        self._delay_read = 0
        self.delays: list[tuple[int, int]] = []  # end of a step (0: the next one) -> its run-queue delay, ns
        self.to_marked: Callable[[int], int] = lambda step: 0  # steps until the next one that is marked in full
        self.clocked = True
        self.clocked_at = 0  # the last clocked step
        self._clocked_steps = 1
        # buffered marks are processed: CPU clocks and the live header do not match the marks
        self.replaying = False
        self.last_step_ns = self.last_forward_ns = 0
        self.fewest_marks = 0  # the smallest number of marks in a step since the first; 0 unknown
        self.fewest_rounds = 0  # likewise its batches, or its updates if no loader feeds it
        self.last_loader = -1
        self.phase = START
        self.since = clock()
        self.cpu_since = cpu_clock()
        self.system_since = system_clock()
        self._reset(self.since)

    def _reset(self, now: int) -> None:
        """Begins a step at `now`."""
        self.t_start = now
        self.wall = [0] * len(PHASES)
        self.cpu = [0] * len(PHASES)
        self.system_ns = 0
        self.nodes.begin_step()
        self.marks = 0
        self.gc_ns = 0
        self.loader_start_ns = 0
        self.samples = 0
        self.micro_batches = 0
        self.updates = 0  # steps of optimizers
        self.loader = -1
        self.flags = FLAG_CLOCKED if self.clocked else 0
        self.stepped = False  # an optimizer has stepped in this step
        self.exhausted = False  # a training loader was exhausted: its last batch may have been fetched earlier
        self.backward_seen = False
        self.fetched: dict[int, int] = {}  # training candidates: loader id -> fetches in this step
        # (loader, input and forward wall, input and forward cpu) at the last candidate's fetch, until a backward uses it
        self.unconsumed: Any = None

    # -- chunks ---------------------------------------------------------------------------------------------------------------

    def enter(self, phase: int, charge: int = -1) -> int:
        """Ends the running chunk, adds it to `charge` (default: its phase) and continues in `phase`."""
        now = self.clock()
        owner = self.phase if charge < 0 else charge
        self.wall[owner] += now - self.since
        self.phase = phase
        self.since = now
        self.marks += 1
        if not self.replaying:
            if self.clocked:
                self._charge_cpu(owner)
            if self.ring is not None:
                self.ring.phase(phase, self.step, now)
        if self._evaluation_began or phase == EVALUATION:
            self._follow_evaluation(phase, now)
        return now

    def _charge_cpu(self, owner: int) -> None:
        cpu = self.cpu_clock()
        self.cpu[owner] += cpu - self.cpu_since
        self.cpu_since = cpu
        if owner in (FORWARD, BACKWARD) or self.phase in (FORWARD, BACKWARD):
            system = self.system_clock()
            if owner in (FORWARD, BACKWARD):
                self.system_ns += system - self.system_since
            self.system_since = system
            self._count_nodes(owner)

    def _count_nodes(self, owner: int = -1) -> None:
        """Adds the autograd nodes since the last call if `owner` is the forward or backward pass."""
        if self.graph_nodes is None:
            return
        self.nodes.count(self.graph_nodes(), computed=owner in (FORWARD, BACKWARD))

    def _follow_evaluation(self, phase: int, now: int) -> None:
        if phase == EVALUATION:
            if self._evaluation_began == 0:
                self._evaluation_began = now
        elif phase != CHECKPOINT:
            self.span("evaluation", self._evaluation_began, now, 0, self._evaluated, -1)
            self._evaluation_began = self._evaluated = 0

    def collected(self, began: int, ended: int) -> None:
        """Adds one garbage collection."""
        self.gc_ns += ended - began
        if ended - began >= LONG_GC_NS:
            self.span("gc", began, ended, 0, 1, -1)

    def span(self, label: str, began: int, ended: int, cpu_ns: int, count: int, site: int) -> None:
        if self.ring is not None:
            self.ring.write(KIND_SPAN, 0, (SPAN_CODE[label], self.step, began, ended, cpu_ns, count, site))

    # -- steps ----------------------------------------------------------------------------------------------------------------

    def _choose_clock(self) -> None:
        was, self.clocked = self.clocked, self.steps_to_clock() <= 0
        if self.clocked:
            self.clocked_at = self.step
            self._clocked_steps += 1
            if not was:
                self.cpu_since, self.system_since = self.cpu_clock(), self.system_clock()
                self._count_nodes()

    def begin_step(self) -> bool:
        """Called after replaying a buffer. True if its last mark began a step; then decides whether to read that step's CPU clocks."""
        if self.phase != INPUT or self.since != self.t_start:
            return False
        self._choose_clock()
        if self.clocked:
            self.flags |= FLAG_CLOCKED
        return True

    def steps_to_clock(self) -> int:
        """Number of steps until the next clocked one; 0 or less: this step."""
        often = CLOCKED_FIRST_NS if self._clocked_steps < FIRST_CLOCKED else CLOCKED_EVERY_NS
        every = min(CLOCKED_EVERY_MAX, often // max(self.last_step_ns, 1))
        return max(self.clocked_at + every - self.step, self.to_marked(self.step)) if every > 1 else 0

    def _close(self, now: int) -> None:
        """Writes the step that ends at `now` and begins the next."""
        if not self.fetched and not self.exhausted:
            self.flags |= FLAG_NO_LOADER
        if self.ring is not None:
            self._write(now)
        self.last_step_ns, self.last_loader = now - self.t_start, self.loader
        self.last_forward_ns = self.wall[FORWARD] // max(self.micro_batches, 1)
        if self.step:
            self.fewest_marks = min(self.fewest_marks or self.marks, self.marks)
            rounds = self.micro_batches or self.updates or 1
            self.fewest_rounds = min(self.fewest_rounds or rounds, rounds)
        self.step += 1
        if not self.replaying:
            self._choose_clock()
        self._reset(now)
        if self.on_step is not None:
            self.on_step(self.step)

    def _write(self, now: int) -> None:
        wall, cpu, fetching = self.wall, self.cpu, self.fetching
        if not self.replaying:
            for began, ended in self.garbage.take(self.thread):
                self.collected(began, ended)
        if self.clocked:
            self.read_delay()
            self.nodes.end_step(self.step, cpu[FORWARD] + cpu[BACKWARD])
        labelled_cpu = cpu[EVALUATION] + cpu[CHECKPOINT]
        self.ring.write(
            KIND_STEP,
            self.flags,
            (
                self.step,
                self.t_start,
                now,
                wall[INPUT],
                wall[FORWARD],
                wall[BACKWARD],
                wall[CLIP],
                wall[OPTIMIZER],
                wall[GAP] + wall[START],
                wall[EVALUATION],
                wall[CHECKPOINT],
                cpu[INPUT],
                cpu[FORWARD],
                cpu[BACKWARD],
                cpu[OPTIMIZER] + cpu[CLIP],
                cpu[GAP] + cpu[START] + labelled_cpu,
                self.take_delay(now),
                self.gc_ns,
                self.loader_start_ns,
                fetching.batches,
                fetching.wall_ns,
                fetching.cpu_ns,
                fetching.delay_ns,
                fetching.blocks,
                self.samples,
                self.micro_batches,
                self.loader,
                self.self_ns - self.self_at_step,
                self.system_ns,
            ),
        )
        self.self_at_step = self.self_ns
        if fetching.batches:
            fetching.clear()
        self.ring.cost(self.self_ns, self.errors)

    def read_delay(self, ends: Sequence[int] = ()) -> None:
        """Assigns the run-queue delay since the last reading to the next step that is written.

        With several steps, which end at these times (ns), it is split over the steps longer than usual, in proportion to their excess.
        """
        if len(self.delays) > _DELAYS_MAX:  # no step ends: the loop fetches and computes without a backward
            self.delays = [(0, sum(delay for _, delay in self.delays))]
        delay = self.run_delay()
        grown, self._delay_read = delay - self._delay_read, delay
        lengths, begin = [], self.t_start
        for end in ends:
            lengths.append(end - begin)
            begin = end
        usual = sorted(lengths)[len(lengths) // 2] if lengths else 0
        beyond = sum(max(0, length - usual) for length in lengths)
        if not beyond:
            self.delays.append((0, grown))
            return
        for n, end in enumerate(ends):
            self.delays.append((end, grown * max(0, lengths[n] - usual) // beyond))

    def take_delay(self, until: int) -> int:
        taken = 0
        while self.delays and self.delays[0][0] <= until:
            taken += self.delays.pop(0)[1]
        return taken

    def become_rank(self, ring: Ring, run_delay: Callable[[], int]) -> None:
        """Writes marks and steps from now on."""
        self.garbage.take(self.thread)
        self.ring = ring
        self.run_delay = run_delay
        self._delay_read = run_delay()
        ring.phase(self.phase, self.step, self.since)

    def goes_on_in(self, thread: int, run_delay: Callable[[], int] | None) -> None:
        """This thread takes over training; from now on its clocks are read."""
        self.thread = thread
        self.cpu_since, self.system_since = self.cpu_clock(), self.system_clock()
        self._count_nodes()  # each thread has its own count
        if run_delay is not None:
            self.run_delay, self._delay_read = run_delay, run_delay()

    def leave(self) -> None:
        """Writes the time after the last step when the process exits by itself."""
        now = self.enter(ENDED)
        self.flags |= FLAG_TAIL
        if self.ring is not None:
            self._write(now)
            self.ring.end()
