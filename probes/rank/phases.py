"""The account of a step: which phase the training thread is in, since when, and where a step begins and ends.

Marks arrive from the patched boundaries (`patches`). Each mark closes the chunk of time since the last one and gives it to exactly one
phase, so the phases of a step sum to its length. Where a chunk belongs is sometimes known only at its end (an optimizer that runs the
closure, a second optimizer of the same step): then the closing mark says so.
"""

from __future__ import annotations

from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from .cost import system_time_ns
from .layout import (
    FLAG_CLOCKED,
    FLAG_EPOCH_START,
    FLAG_NO_LOADER,
    FLAG_NO_OPTIMIZER,
    FLAG_SKIPPED_UPDATE,
    FLAG_TAIL,
    KIND_SPAN,
    KIND_STEP,
    PHASE_CODE,
    PHASES,
    SPAN_CODE,
    STEP_FIELDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .ring import Ring

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

TRAINING = 1
EVALUATING = 2
INSIDE_BACKWARD = 0  # no optimizer's id: the one of each parameter, which a hook of its gradient runs (PyTorch's memory tutorial, LOMO)

# An optimizer whose step is compiled fires no hook. After this many backward passes without one, each backward counts as a step.
INVISIBLE_OPTIMIZER_AFTER = 20
# So many turns of an optimizer without a fetch between them, and the loop is one that no loader feeds (in-memory tensors, one fixed batch).
TURNS_WITHOUT_LOADER = 2
# So many steps of other optimizers, and the first one is gone: one loop after another, each with an optimizer of its own.
FIRST_IS_GONE_AFTER = 20
# Prefetchers and loops with a teacher model fetch what they train on under no_grad; an evaluation of one batch may precede a backward, too.
UNGRADED_IS_HABIT_AFTER = 3
# A CPU clock is a system call: 0.6 us in a tight loop, 10-30 us where training has emptied the caches, ten of them a step. They are read
# once in this time, and more often at first: a short run is to be understood, too.
CLOCKED_EVERY_NS = 500_000_000
CLOCKED_FIRST_NS = 100_000_000
FIRST_CLOCKED = 30  # steps
CLOCKED_EVERY_MAX = 512  # a loop of steps that take next to nothing
USUAL_MARKS = 6  # of a step of a plain loop
# Fields that are zero in a step that `take_usual_steps` takes, between those that are not.
BEFORE_DELAY_NS = (0,) * (STEP_FIELDS.index("run_delay_ns") - STEP_FIELDS.index("gap_ns") - 1)
BEFORE_SAMPLES = (0,) * (STEP_FIELDS.index("samples") - STEP_FIELDS.index("gc_ns") - 1)
LONG_GC_NS = 5_000_000  # collections beyond this get a line of their own on the timeline


class Fetching:
    """What the account adds up about loading inside the training process (num_workers=0)."""

    __slots__ = ("batches", "blocks", "cpu_ns", "delay_ns", "wall_ns")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.batches = self.wall_ns = self.cpu_ns = self.delay_ns = self.blocks = 0


class Account:
    """The phases of one training thread. `ring` is None until the process has shown itself a rank by its first backward pass."""

    def __init__(
        self,
        *,
        thread: int,
        clock: Callable[[], int] = perf_counter_ns,
        cpu_clock: Callable[[], int] = thread_time_ns,
        system_clock: Callable[[], int] = system_time_ns,
    ) -> None:
        self.thread = thread
        self.clock = clock
        self.cpu_clock = cpu_clock
        self.system_clock = system_clock
        self.ring: Any = None  # a Ring; no check for None at every mark
        self.run_delay: Any = None  # callable: run-queue delay of the training thread so far, ns
        self.on_step: Callable[[int], None] | None = None  # callable(step index) after a step was closed
        self.step = 0
        self.self_ns = 0  # since the process started
        self.errors = 0
        self.loaders: dict[int, int] = {}  # DataLoader id -> TRAINING or EVALUATING, once its deeds have told
        self.evaluated: set[int] = set()  # loaders that were asked for a batch of evaluation
        self.backwards = 0
        self.optimizers = 0  # optimizer steps seen in all
        self.fetching = Fetching()
        self._first_optimizer: int | None = None
        self._last_optimizer: int | None = None
        self._cycle_end: int | None = None  # the optimizer that steps last in one turn of a loop without loader
        self._turns = 0  # turns of the first optimizer since the last training fetch
        self._without_first = 0  # steps of other optimizers since its last one
        self._optimizer_depth = 0
        self._gradients = False  # a backward has run that no optimizer has used yet
        self._updated_inside = False  # an optimizer has stepped inside the backward that runs
        self._evaluation_began = 0
        self._evaluated = 0
        self._doubtful = -1  # loader taken for an evaluating one by its last fetch, which may yet meet a backward
        self._in_no_grad = False  # that fetch
        self._ungraded: dict[int, int] = {}  # loader -> how often a single batch fetched under no_grad met a backward
        self._opened: tuple[int, int, int] | None = (
            None  # (loader, wall, cpu of input_wait before) of an iterator just made by a loader of unknown purpose
        )
        self._self_at_step = 0
        self._delay_read = 0
        self._delays: list[
            tuple[int, int]
        ] = []  # of the run-queue delay what goes to the step that ends then (0: the next one), ns
        self.clocked = True
        self.clocked_at = 0  # the step that was clocked last
        self._clocked_steps = 1
        # marks come late, from a tape: the clocks but for wall time, and the live header, are not theirs
        self.replaying = False
        self.last_step_ns = 0
        self.fewest_marks = 0  # of a step since the first; 0 unknown
        self.last_loader = -1
        self.phase = START
        self.since = clock()
        self.cpu_since = cpu_clock()
        self.system_since = system_clock()
        self._reset(self.since)

    def _reset(self, now: int) -> None:
        """Begin a step at `now`."""
        self.t_start = now
        self.wall = [0] * len(PHASES)
        self.cpu = [0] * len(PHASES)
        self.system_ns = 0
        self.marks = 0
        self.gc_ns = 0
        self.loader_start_ns = 0
        self.samples = 0
        self.micro_batches = 0
        self.loader = -1
        self.flags = FLAG_CLOCKED if self.clocked else 0
        self.stepped = False  # an optimizer has stepped since the step began
        self.exhausted = False  # a training loader had no more: its last batch may have been fetched before
        self.backward_seen = False
        self.fetched: dict[int, int] = {}  # training candidates: loader id -> fetches in this step
        self.unconsumed: Any = None  # (loader, wall, cpu) at the last candidate's fetch, until a backward consumes it

    # -- chunks ---------------------------------------------------------------------------------------------------------------

    def enter(self, phase: int, charge: int = -1) -> int:
        """Close the running chunk, charge it to `charge` (default: the phase it ran under) and go on in `phase`."""
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

    def _follow_evaluation(self, phase: int, now: int) -> None:
        if phase == EVALUATION:
            if self._evaluation_began == 0:
                self._evaluation_began = now
        elif phase != CHECKPOINT:
            self.span("evaluation", self._evaluation_began, now, 0, self._evaluated, -1)
            self._evaluation_began = self._evaluated = 0

    # -- marks ----------------------------------------------------------------------------------------------------------------

    def fetch_begin(self, loader: int, evaluating: bool, first: bool) -> bool:
        """A loader is asked for a batch. Returns True when the fetch may feed training."""
        known = self.loaders.get(loader)
        if known == EVALUATING or (evaluating and not (known == TRAINING and self._is_habit(loader))):
            now = self.enter(EVALUATION)
            self._evaluated += 1
            self._doubtful = loader if self._evaluated == 1 or not evaluating else -1
            self._in_no_grad = evaluating
            self.evaluated.add(loader)
            return False
        self._optimizer_depth = 0  # an optimizer that raised has told of no end
        charge = GAP if self.phase == CLIP else -1  # accumulation: the micro-batch ended with its backward
        if self.unconsumed is not None and self._was_evaluation(loader):
            charge = EVALUATION
        now = self.enter(INPUT, charge)
        if self.stepped or self._optimizer_invisible():
            self._close(now)
        if first:
            self.flags |= FLAG_EPOCH_START
        self._turns = 0
        self.fetched[loader] = self.fetched.get(loader, 0) + 1
        before = self.wall[INPUT], self.cpu[INPUT]
        if self._opened is not None:
            before = self._opened[1:] if self._opened[0] == loader else before
            self._opened = None
        self.unconsumed = (loader, before[0], self.wall[FORWARD], before[1], self.cpu[FORWARD])
        return True

    def _was_evaluation(self, loader: int) -> bool:
        """The last candidate's batch met no backward. Unless its loader is known to train, what it took goes to evaluation."""
        last, wait, forward, wait_cpu, forward_cpu = self.unconsumed
        if self.loaders.get(last) == TRAINING:
            return False
        if last == loader and self.backwards == 0 and self.fetched.get(loader, 0) < 3:
            return False  # a look-ahead of one batch before the very first forward (accelerate, Lightning)
        self.wall[EVALUATION] += self.wall[INPUT] - wait + self.wall[FORWARD] - forward
        self.cpu[EVALUATION] += self.cpu[INPUT] - wait_cpu + self.cpu[FORWARD] - forward_cpu
        self.wall[INPUT], self.wall[FORWARD] = wait, forward
        self.cpu[INPUT], self.cpu[FORWARD] = wait_cpu, forward_cpu
        if last == loader and self.backwards and self.fetched.get(loader, 0) >= 2:
            self.loaders[last] = EVALUATING
        return self.phase == FORWARD

    def fetch_end(self, training: bool, samples: int) -> None:
        self.enter(FORWARD if training else EVALUATION)
        if training:
            self.samples += samples
            self.micro_batches += 1

    def fetch_stop(self, training: bool, loader: int) -> None:
        """The loader is exhausted, or its fetch raised: no batch came."""
        self.enter(GAP)
        if training:
            self.unconsumed = None
            self.exhausted = self.loaders.get(loader) == TRAINING
            self.fetched[loader] -= 1
            if self.fetched[loader] == 0:
                del self.fetched[loader]
            elif not self.backward_seen and loader not in self.loaders:
                # all its batches met no backward; that of a loop which looks ahead may still come
                self.loaders[loader] = EVALUATING
                self._doubtful = loader
                self._in_no_grad = False
                del self.fetched[loader]
        elif self._in_no_grad:
            self._doubtful = -1

    def loader_started(self, loader: int, evaluating: bool, began: int) -> None:
        """An iterator was made and its workers started: it took from `began` until now."""
        known = self.loaders.get(loader)
        evaluation = evaluating or known == EVALUATING
        began = max(began, self.since)
        self.wall[self.phase] += began - self.since
        self.since = began
        if not evaluation and (self.stepped or self._optimizer_invisible()):
            self._close(began)
        if not evaluation and known is None:
            self._opened = (loader, self.wall[INPUT], self.cpu[INPUT])
        now = self.enter(self.phase, EVALUATION if evaluation else INPUT)
        if not evaluation:
            self.loader_start_ns += now - began
        self.span("loader_start", began, now, 0, 0, loader)

    def workers_end(self, loader: int) -> int:
        """Returns the phase to go back to; what ends an epoch counts as the begin of the next."""
        phase, evaluation = self.phase, self.loaders.get(loader) == EVALUATING
        now = self.enter(EVALUATION if evaluation else INPUT)
        if not evaluation and self.stepped:
            self._close(now)
        return phase

    def backward_begin(self) -> bool:
        """Returns False for a backward inside a backward."""
        if self.phase == BACKWARD:
            return False
        # gap, clip: the forward of a second optimizer or loss; optimizer: inside a closure; start: nothing was marked before
        self.enter(BACKWARD, FORWARD if self.phase in (GAP, CLIP, OPTIMIZER, START) else -1)
        if self.unconsumed is not None:
            self._consume()
        elif self._doubtful >= 0 and self._trains_after_all(self._doubtful):
            self.loaders[self._doubtful] = TRAINING
        self._doubtful = -1
        return True

    def _trains_after_all(self, loader: int) -> bool:
        """The last batch taken for an evaluating one met a backward; one fetched under no_grad does so by habit alone."""
        if not self._in_no_grad:
            return True
        self._ungraded[loader] = self._ungraded.get(loader, 0) + 1
        return TRAINING not in self.loaders.values() and self._is_habit(loader)

    def _is_habit(self, loader: int) -> bool:
        return self._ungraded.get(loader, 0) >= UNGRADED_IS_HABIT_AFTER

    def _consume(self) -> None:
        """The loaders fetched as often as the last one feed training; the others of this step do not."""
        last = self.unconsumed[0]
        self.unconsumed = None
        self.loader = last
        if len(self.fetched) == 1 and last in self.loaders:  # the usual step
            self.loaders[last] = TRAINING
            return
        often = self.fetched[last]
        for loader, times in self.fetched.items():
            if times == often:
                self.loaders[loader] = TRAINING
            else:
                self.loaders.setdefault(loader, EVALUATING)

    def backward_end(self) -> None:
        inside, self._updated_inside = self._updated_inside, False
        if inside:
            self._optimizer_depth = 0  # one that raised has told of no end
        now = self.enter(OPTIMIZER if self._optimizer_depth else GAP if inside else CLIP)
        self.backwards += 1
        self.backward_seen = True
        self._gradients = not inside
        if inside:
            self._end_turn(INSIDE_BACKWARD, now)
        elif not self.fetched and self._optimizer_invisible():
            self._close(now)  # a loop that updates its parameters by hand, on tensors of its own

    def optimizer_begin(self, optimizer: int) -> None:
        if self._optimizer_depth == 0:
            inside = self.phase == BACKWARD
            if not (inside and self._updated_inside):  # all that a backward's hooks run are one
                self._begin_turn(INSIDE_BACKWARD if inside else optimizer)
            self._updated_inside = inside
            # the next batch was fetched between backward and optimizer: the chunk is no forward
            late = self.phase == FORWARD and self._gradients and self.unconsumed is not None
            self.enter(OPTIMIZER, CLIP if late else -1)
        self._optimizer_depth += 1

    def _begin_turn(self, optimizer: int) -> None:
        if self._first_optimizer is None:
            self._first_optimizer = optimizer
        elif optimizer != self._first_optimizer:
            self._count_others(optimizer)
        else:
            self._without_first = 0
            if self.stepped:
                self._turns += 1
                self._cycle_end = self._last_optimizer

    def _end_turn(self, optimizer: int, now: int) -> None:
        if self._turns >= TURNS_WITHOUT_LOADER and optimizer == self._cycle_end:
            self._close(now)

    def _count_others(self, optimizer: int) -> None:
        self._without_first += 1
        if self._without_first > FIRST_IS_GONE_AFTER:
            self._first_optimizer, self._cycle_end = optimizer, None
            self._without_first = self._turns = 0

    def optimizer_end(self, optimizer: int, stepped: bool = True) -> None:
        self._optimizer_depth = max(0, self._optimizer_depth - 1)
        if stepped:
            self.stepped = True
            self.optimizers += 1
            self._last_optimizer = INSIDE_BACKWARD if self._updated_inside else optimizer
        if self._optimizer_depth:
            return
        if self._updated_inside:
            self.enter(BACKWARD)
            return
        self._gradients = False
        self._end_turn(optimizer, self.enter(GAP))

    def update_skipped(self) -> None:
        """GradScaler found inf or nan: the update counts as a step, flagged."""
        self.flags |= FLAG_SKIPPED_UPDATE
        self.stepped = True

    def checkpoint_begin(self) -> int:
        """Returns the phase to go back to."""
        phase = self.phase
        self.enter(CHECKPOINT)
        return phase

    def checkpoint_end(self, phase: int, began: int, site: int) -> None:
        now = self.enter(phase)
        self.span("checkpoint", began, now, 0, 1, site)

    def collected(self, began: int) -> None:
        """A garbage collection ended."""
        now = self.clock()
        self.gc_ns += now - began
        if now - began >= LONG_GC_NS:
            self.span("gc", began, now, 0, 1, -1)

    def span(self, label: str, began: int, ended: int, cpu_ns: int, count: int, site: int) -> None:
        if self.ring is not None:
            self.ring.write(KIND_SPAN, 0, (SPAN_CODE[label], self.step, began, ended, cpu_ns, count, site))

    # -- steps ----------------------------------------------------------------------------------------------------------------

    def take_usual_steps(self, times: list[int], arguments: list[int]) -> bool:
        """Whole steps of a plain loop, each from its first fetch to the next step's: what their marks one by one would come to.

        `times` and `arguments` are of each step's marks: its batch, backward, its end, optimizer, its end, next fetch. False: these may
        be no such steps, and none was taken.
        """
        loader, optimizer, began = self.last_loader, self._first_optimizer, self.since
        steps = len(times) // USUAL_MARKS
        if (
            self.phase != INPUT
            or began != self.t_start
            or self.fetched != {loader: 1}
            or self.loaders.get(loader) != TRAINING
            or optimizer is None
            or self._last_optimizer != optimizer
            or arguments[4::USUAL_MARKS].count(optimizer) != steps
            or self._optimizer_depth
            or self.fetching.batches
        ):
            return False
        step, write, delays = self.step, self.ring.write, self._delays
        last = began
        for i in range(0, len(times), USUAL_MARKS):
            batch, backward, backward_end, update, update_end, fetch = times[i : i + USUAL_MARKS]
            # as `_write` would: in a step that is not clocked and had no other mark, all the rest is zero
            write(
                KIND_STEP,
                self.flags,
                (
                    step,
                    began,
                    fetch,
                    batch - began,
                    backward - batch,
                    backward_end - backward,
                    update - backward_end,
                    update_end - update,
                    fetch - update_end,
                    *BEFORE_DELAY_NS,
                    self._take_delay(fetch) if delays else 0,
                    self.gc_ns,
                    *BEFORE_SAMPLES,
                    arguments[i],
                    1,
                    loader,
                    self.self_ns - self._self_at_step,
                    0,
                ),
            )
            self._self_at_step = self.self_ns
            self.gc_ns = self.flags = 0
            step += 1
            last, began = began, fetch
        self.backwards += steps
        self.optimizers += steps
        self.step = step
        self.last_step_ns = began - last
        self.t_start = self.since = began
        return True

    def _choose_clock(self) -> None:
        was, self.clocked = self.clocked, self.steps_to_clock() <= 0
        if self.clocked:
            self.clocked_at = self.step
            self._clocked_steps += 1
            if not was:
                self.cpu_since, self.system_since = self.cpu_clock(), self.system_clock()

    def begin_step(self) -> bool:
        """After a tape was read: if its last mark began a step, choose whether this one's CPU clocks are read. False: it did not."""
        if self.phase != INPUT or self.since != self.t_start:
            return False
        self._choose_clock()
        if self.clocked:
            self.flags |= FLAG_CLOCKED
        return True

    def steps_to_clock(self) -> int:
        """Steps before the next one in which CPU clocks are read; 0 or less: this one."""
        often = CLOCKED_FIRST_NS if self._clocked_steps < FIRST_CLOCKED else CLOCKED_EVERY_NS
        every = min(CLOCKED_EVERY_MAX, often // max(self.last_step_ns, 1))
        return self.clocked_at + every - self.step if every > 1 else 0

    def _optimizer_invisible(self) -> bool:
        if self.optimizers == 0 and self.backward_seen and self.backwards > INVISIBLE_OPTIMIZER_AFTER:
            self.flags |= FLAG_NO_OPTIMIZER
            return True
        return False

    def _close(self, now: int) -> None:
        """Write the step that ends at `now` and begin the next."""
        if not self.fetched and not self.exhausted:
            self.flags |= FLAG_NO_LOADER
        if self.ring is not None:
            self._write(now)
        self.last_step_ns, self.last_loader = now - self.t_start, self.loader
        if self.step:
            self.fewest_marks = min(self.fewest_marks or self.marks, self.marks)
        self.step += 1
        if not self.replaying:
            self._choose_clock()
        self._reset(now)
        if self.on_step is not None:
            self.on_step(self.step)

    def _write(self, now: int) -> None:
        wall, cpu, fetching = self.wall, self.cpu, self.fetching
        if self.clocked:
            self.read_delay()
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
                self._take_delay(now),
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
                self.self_ns - self._self_at_step,
                self.system_ns,
            ),
        )
        self._self_at_step = self.self_ns
        if fetching.batches:
            fetching.clear()
        self.ring.cost(self.self_ns, self.errors)

    def read_delay(self, ends: Sequence[int] = ()) -> None:
        """The run-queue delay since the last reading goes to the step that is written next.

        Of several steps that end at these times (ns) it goes to those that took longer than the usual one, as much longer as they did.
        """
        delay = self.run_delay()
        grown, self._delay_read = delay - self._delay_read, delay
        lengths, begin = [], self.t_start
        for end in ends:
            lengths.append(end - begin)
            begin = end
        usual = sorted(lengths)[len(lengths) // 2] if lengths else 0
        beyond = sum(max(0, length - usual) for length in lengths)
        if not beyond:
            self._delays.append((0, grown))
            return
        for n, end in enumerate(ends):
            self._delays.append((end, grown * max(0, lengths[n] - usual) // beyond))

    def _take_delay(self, until: int) -> int:
        taken = 0
        while self._delays and self._delays[0][0] <= until:
            taken += self._delays.pop(0)[1]
        return taken

    def become_rank(self, ring: Ring, run_delay: Callable[[], int]) -> None:
        """From now on marks and steps are written."""
        self.ring = ring
        self.run_delay = run_delay
        self._delay_read = run_delay()
        ring.phase(self.phase, self.step, self.since)

    def leave(self) -> None:
        """The process ends by itself: write what came after the last step."""
        now = self.enter(ENDED)
        self.flags |= FLAG_TAIL
        if self.ring is not None:
            self._write(now)
            self.ring.end()
