"""What the marks of a training thread mean: which loader trains, which backward and optimizer end a step, where evaluation goes.

Where a chunk of time belongs is sometimes known only at its end (an optimizer that runs the closure, a second optimizer of the same step):
then the closing mark says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .layout import FLAG_EPOCH_START, FLAG_NO_OPTIMIZER, FLAG_SKIPPED_UPDATE, KIND_STEP, STEP_FIELDS
from .step_phases import BACKWARD, CHECKPOINT, CLIP, EVALUATION, FORWARD, GAP, INPUT, OPTIMIZER, START, Steps
from .unmet_batches import SKIPPED, UNSEEN, Unmet

if TYPE_CHECKING:
    from collections.abc import Callable

    from .garbage import Garbage

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
USUAL_MARKS = 6  # of a step of a plain loop
# Fields that are zero in a step that `take_usual_steps` takes, between those that are not.
BEFORE_DELAY_NS = (0,) * (STEP_FIELDS.index("run_delay_ns") - STEP_FIELDS.index("gap_ns") - 1)
BEFORE_SAMPLES = (0,) * (STEP_FIELDS.index("samples") - STEP_FIELDS.index("gc_ns") - 1)


class Account(Steps):
    """The phases of one training thread. `ring` is None until the process has shown itself a rank by its first backward pass."""

    def __init__(self, *, thread: int, garbage: Garbage | None = None, **clocks: Callable[[], int]) -> None:
        """`garbage` and `clocks`: those of `Steps`, where they are not the process's own."""
        self.loaders: dict[int, int] = {}  # DataLoader id -> TRAINING or EVALUATING, once its deeds have told
        self.evaluated: set[int] = set()  # loaders that were asked for a batch of evaluation
        self.backwards = 0
        self.optimizers = 0  # optimizer steps seen in all
        self._first_optimizer: int | None = None
        self.last_optimizer: int | None = None  # the id of what stepped last
        self._cycle_end: int | None = None  # the optimizer that steps last in one turn of a loop without loader
        self._turns = 0  # turns of the first optimizer since the last training fetch
        self._without_first = 0  # steps of other optimizers since its last one
        self._optimizer_depth = 0
        self._gradients = False  # a backward has run that no optimizer has used yet
        self._updated_inside = False  # an optimizer has stepped inside the backward that runs
        self._doubtful = -1  # loader taken for an evaluating one by its last fetch, which may yet meet a backward
        self._in_no_grad = False  # that fetch
        self._ungraded: dict[int, int] = {}  # loader -> how often a single batch fetched under no_grad met a backward
        # (loader, wall, cpu of input_wait before) of an iterator just made by a loader of unknown purpose
        self._opened: tuple[int, int, int] | None = None
        self.unmet = Unmet()
        super().__init__(thread=thread, garbage=garbage, **clocks)

    def fetch_begin(self, loader: int, evaluating: bool, first: bool) -> bool:
        """A loader is asked for a batch. Returns True when the fetch may feed training."""
        known = self.loaders.get(loader)
        came = self.since
        if known == EVALUATING or (evaluating and not (known == TRAINING and self._is_habit(loader))):
            now = self.enter(EVALUATION)
            if not evaluating and self.unmet.add(loader, came, now, self._walls()):
                self._look_into_unmet(loader, now)
            self._evaluated += 1
            self._doubtful = loader if self._evaluated == 1 or not evaluating else -1
            self._in_no_grad = evaluating
            self.evaluated.add(loader)
            return False
        self._optimizer_depth = 0  # an optimizer that raised has told of no end
        charge = GAP if self.phase == CLIP else -1  # accumulation: the micro-batch ended with its backward
        if self.unconsumed is not None:
            self._meets_nothing(came)
        if self.unconsumed is not None and self._was_evaluation(loader):
            charge = EVALUATION
        now = self.enter(INPUT, charge)
        if self.stepped or self._optimizer_invisible():
            self._close(now)
        if first:
            self.flags |= FLAG_EPOCH_START
            self.unmet.iterator_begins(loader)
        self._turns = 0
        self.fetched[loader] = self.fetched.get(loader, 0) + 1
        before = self.wall[INPUT], self.cpu[INPUT]
        if self._opened is not None:
            before = self._opened[1:] if self._opened[0] == loader else before
            self._opened = None
        self.unconsumed = (loader, before[0], self.wall[FORWARD], before[1], self.cpu[FORWARD])
        return True

    def _meets_nothing(self, came: int) -> None:
        """The last candidate's batch, which `came` then, met no backward."""
        last, wait, forward = self.unconsumed[:3]
        now = self.clock()
        if not self.unmet.add(last, came, now, (wait, forward, self.wall[EVALUATION])):
            return
        if self._look_into_unmet(last, now) and self.loaders.get(last) == TRAINING:
            # it trains, and now it is evaluated on
            wait, forward, _ = self.unmet.walls
            self.loaders[last] = EVALUATING
            self.unconsumed = (last, wait, forward, *self.unconsumed[3:])

    def _look_into_unmet(self, loader: int, now: int) -> bool:
        """Whether the run of batches that met no backward shows to be an evaluation. If not, it is told of as far as it goes."""
        if self.unmet.looked(loader):
            return True
        self.span(UNSEEN, self.unmet.since, now, 0, self.unmet.batches, loader)
        return False

    def _walls(self) -> tuple[int, int, int]:
        return self.wall[INPUT], self.wall[FORWARD], self.wall[EVALUATION]

    def _end_unmet(self, loader: int, now: int) -> None:
        """Batches of this loader train again; -1: the process ends."""
        what, batches = self.unmet.met(loader, now)
        if not batches:
            return
        self.span(what, self.unmet.since, now, 0, batches, loader)
        if what == SKIPPED:  # before the first backward they were taken for an evaluation's
            taken = max(0, self.wall[EVALUATION] - self.unmet.walls[2])
            self.wall[EVALUATION] -= taken
            self.wall[INPUT] += taken

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
        if self.unmet.batches:
            self._end_unmet(self._doubtful if self.unconsumed is None else self.unconsumed[0], self.since)
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
                self._cycle_end = self.last_optimizer

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
            self.updates += 1
            self.last_optimizer = INSIDE_BACKWARD if self._updated_inside else optimizer
        if self._optimizer_depth:
            return
        if self._updated_inside:
            self.enter(BACKWARD)
            return
        self._gradients = False
        self._end_turn(optimizer, self.enter(GAP))

    def updated_in_hooks(self, updates: list[tuple[int, int, int]]) -> None:
        """While this thread waits for its backward, hooks have stepped optimizers in others: (begin, end, id), as if in this one."""
        clock, replaying = self.clock, self.replaying
        self.replaying = True  # of the clocks only wall time is theirs
        try:
            for began, ended, optimizer in sorted(updates):
                # several devices' threads may step at a time
                self.clock = partial(max, began, self.since)
                self.optimizer_begin(optimizer)
                self.clock = partial(max, ended, self.since)
                self.optimizer_end(optimizer)
        finally:
            self.clock, self.replaying = clock, replaying

    @property
    def inside_backward(self) -> bool:
        return self.phase == BACKWARD or self._updated_inside

    def leave(self) -> None:
        self._end_unmet(-1, self.clock())
        super().leave()

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

    def take_usual_steps(self, times: list[int], samples: list[int], collections: list[tuple[int, int]]) -> int:
        """Whole steps of a plain loop, each from its first fetch to the next step's: what their marks one by one would come to.

        `times` are those of each step's marks: its batch, backward, its end, optimizer, its end, next fetch; `samples` those of each batch;
        of the garbage `collections`, begin and end, those within these steps are taken out. Returns how many steps were taken: all or,
        where these may be no such steps, none.
        """
        loader, began, steps = self.last_loader, self.since, len(times) // USUAL_MARKS
        if (
            not steps
            or self.phase != INPUT
            or began != self.t_start
            or self.fetched != {loader: 1}
            or self.loaders.get(loader) != TRAINING
            or self._first_optimizer is None
            or self.last_optimizer != self._first_optimizer
            or self._optimizer_depth
            or self.fetching.batches
        ):
            return 0
        write, delays = self.ring.write, self._delays
        last = began
        for i in range(0, len(times), USUAL_MARKS):
            batch, backward, backward_end, update, update_end, fetch = times[i : i + USUAL_MARKS]
            while collections and collections[0][1] <= fetch:
                self.collected(*collections.pop(0))
            # as `_write` would: in a step that is not clocked and had no other mark, all the rest is zero
            write(
                KIND_STEP,
                self.flags,
                (
                    self.step,
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
                    samples[i // USUAL_MARKS],
                    1,
                    loader,
                    self.self_ns - self._self_at_step,
                    0,
                ),
            )
            self._self_at_step = self.self_ns
            self.gc_ns = self.flags = 0
            self.step += 1
            last, began = began, fetch
        self.backwards += steps
        self.optimizers += steps
        self.last_step_ns = began - last
        self.t_start = self.since = began
        return steps

    def _optimizer_invisible(self) -> bool:
        if self.optimizers == 0 and self.backward_seen and self.backwards > INVISIBLE_OPTIMIZER_AFTER:
            self.flags |= FLAG_NO_OPTIMIZER
            return True
        return False
