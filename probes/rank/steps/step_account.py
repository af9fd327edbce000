"""Interprets the marks of a training thread: the loader that trains, the backward and optimizer that end a step, evaluation.

Sometimes the phase of a chunk of time is known only at its end (an optimizer that runs a closure, a second optimizer in the same step).
Then the mark at its end sets it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..layout import FLAG_EPOCH_START, FLAG_NO_OPTIMIZER, FLAG_SKIPPED_UPDATE
from .autograd_nodes import EvaluatedBatches
from .optimizer_turns import INSIDE_BACKWARD, OptimizerTurns
from .step_phases import BACKWARD, CHECKPOINT, CLIP, EVALUATION, FORWARD, GAP, INPUT, OPTIMIZER, START, Steps
from .untrained_batches import SKIPPED, UNSEEN, UntrainedBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..garbage import Garbage

TRAINING = 1
EVALUATING = 2

# A compiled optimizer step calls no hook. After this many backward passes without an optimizer, each backward counts as a step.
INVISIBLE_OPTIMIZER_AFTER = 20
# Prefetchers and loops with a teacher model fetch training batches under no_grad; a one-batch evaluation may also precede a backward.
UNGRADED_TRAINS_AFTER = 3
PLAIN_STEP_MARKS = 6  # per step of a plain loop
# A loop that asks for its second batch so soon, in ns or as a share of its longest use of one, has looked ahead (accelerate).
LOOKS_AHEAD_NS, LOOKS_AHEAD_SHARE = 1_000_000, 0.1


class Account(Steps):
    """The phases of one training thread. `ring` is None until the first backward pass makes the process a rank."""

    def __init__(self, *, thread: int, garbage: Garbage | None = None, **clocks: Callable[[], int]) -> None:
        """`garbage` and `clocks` replace the process's own in `Steps`."""
        self.loaders: dict[int, int] = {}  # DataLoader id -> TRAINING or EVALUATING, once known from its use
        self.evaluated: set[int] = set()  # loaders that supplied an evaluation batch
        self.evaluated_batches = EvaluatedBatches()
        self.backwards = 0
        self.optimizers = 0  # optimizer steps so far
        self.optimizer_turns = OptimizerTurns()
        self.last_optimizer: int | None = None  # id of the optimizer that stepped last
        self.optimizer_depth = 0
        self._gradients = False  # a backward has run and no optimizer has stepped since
        self.updated_inside = False  # an optimizer has stepped inside the running backward
        self._doubtful = -1  # loader classified as evaluating by its last fetch, whose batch may still get a backward
        self._in_no_grad = False  # that fetch was under no_grad
        self._ungraded: dict[int, int] = {}  # loader -> number of backwards on a single batch fetched under no_grad
        # (loader, earlier wall and cpu of input_wait) of an iterator just created by an unclassified loader
        self._opened: tuple[int, int, int] | None = None
        self._batch_samples = 0  # samples in the last training candidate's batch
        self.untrained = UntrainedBatches()
        self.evaluates = False  # the model was put into `eval()` mode, and nothing has ended that evaluation yet
        self._before_evaluation = GAP
        self._uses_ns: list[int] = [0, 0]  # first and longest use of a batch of the running evaluation
        self.in_eval_mode: Callable[[], bool] = lambda: False  # True if it still is in `eval()` mode
        self.trained_in_eval_mode: Callable[[], None] = lambda: None  # called at a backward pass in `eval()` mode
        super().__init__(thread=thread, garbage=garbage, **clocks)

    def fetch_begin(self, loader: int, evaluating: bool, first: bool) -> bool:
        """Called when a batch is requested from a loader. Returns True if the fetch may feed training."""
        known = self.loaders.get(loader)
        came = self.since
        if self.evaluates and not evaluating:
            evaluating = self.in_eval_mode()
        if known == EVALUATING or (evaluating and not (known == TRAINING and self._trains_ungraded(loader))):
            now = self.enter(EVALUATION)
            self._used(0 if first else now - came)
            if not evaluating and self.untrained.add(loader, came, now, self._walls()):
                self._check_untrained(loader, now)
            self._evaluated += 1
            self._doubtful = loader if self._evaluated == 1 or not evaluating else -1
            self._in_no_grad = evaluating
            self.evaluated.add(loader)
            self._evaluated_batch()
            return False
        if self.evaluates:
            self._evaluated_without_loader(0.0)
        self.optimizer_depth = 0  # an optimizer that raised has no end mark
        charge = GAP if self.phase == CLIP else -1  # gradient accumulation: the micro-batch ended with its backward
        if self.unconsumed is not None:
            self._got_no_backward(came)
        if self.unconsumed is not None and self._was_evaluation(loader):
            charge = EVALUATION
        now = self.enter(INPUT, charge)
        if self.stepped or self._optimizer_invisible():
            self._close(now)
        if first:
            self.flags |= FLAG_EPOCH_START
            self.untrained.new_iterator(loader)
            if self.unconsumed is not None and self.unconsumed[0] == loader:
                self._not_trained()
        self.optimizer_turns.fetched()
        self.fetched[loader] = self.fetched.get(loader, 0) + 1
        before = self.wall[INPUT], self.cpu[INPUT]
        if self._opened is not None:
            before = self._opened[1:] if self._opened[0] == loader else before
            self._opened = None
        self.unconsumed = (loader, before[0], self.wall[FORWARD], before[1], self.cpu[FORWARD])
        return True

    def trains(self, loader: int) -> bool:
        """True if batches of this loader have got backward passes."""
        return self.loaders.get(loader) == TRAINING

    def _not_trained(self) -> None:
        """Removes the last batch from the step's samples, because its iterator was dropped, as by `next(iter(loader))`."""
        self.samples -= self._batch_samples
        self.micro_batches -= self._batch_samples > 0
        self._batch_samples = 0

    def _got_no_backward(self, came: int) -> None:
        """Called if the last candidate's batch, which came at `came`, got no backward."""
        last, wait, forward = self.unconsumed[:3]
        now = self.clock()
        if not self.untrained.add(last, came, now, (wait, forward, self.wall[EVALUATION])):
            return
        if self._check_untrained(last, now) and self.loaders.get(last) == TRAINING:
            # a training loader used for evaluation now
            wait, forward, _ = self.untrained.walls
            self.loaders[last] = EVALUATING
            self.unconsumed = (last, wait, forward, *self.unconsumed[3:])

    def _check_untrained(self, loader: int, now: int) -> bool:
        """True if the batches without a backward pass are an evaluation; otherwise writes a span for them."""
        if self.untrained.is_evaluation(loader):
            return True
        self.span(UNSEEN, self.untrained.since, now, 0, self.untrained.batches, loader)
        return False

    def _walls(self) -> tuple[int, int, int]:
        return self.wall[INPUT], self.wall[FORWARD], self.wall[EVALUATION]

    def _end_untrained(self, loader: int, now: int) -> None:
        """Ends a run of batches without backward, because this loader trains again (-1: because the process ends)."""
        what, batches = self.untrained.end(loader, now)
        if not batches:
            return
        self.span(what, self.untrained.since, now, 0, batches, loader)
        if what == SKIPPED:  # before the first backward they counted as evaluation
            taken = max(0, self.wall[EVALUATION] - self.untrained.walls[2])
            self.wall[EVALUATION] -= taken
            self.wall[INPUT] += taken

    def _was_evaluation(self, loader: int) -> bool:
        """Charges the last candidate's batch, which got no backward, to evaluation unless its loader is known to train.

        True if the running chunk is evaluation, too.
        """
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
            self._batch_samples = samples
        elif self.graph_nodes is not None:
            self.evaluated_batches.came(self.graph_nodes())

    def _used(self, use_ns: int) -> None:
        """Called when a batch is requested for evaluation, so long after the last one came; 0 for the first."""
        if use_ns == 0:
            self._uses_ns = [0, 0]
        elif self._uses_ns[0] == 0:
            self._uses_ns = [use_ns, use_ns]
        else:
            self._uses_ns[1] = max(self._uses_ns[1], use_ns)

    def _looks_ahead(self) -> bool:
        """True if the evaluation asks for each batch before it uses the last one: then one is left when the loader is exhausted."""
        first, longest = self._uses_ns
        return 0 < first < max(LOOKS_AHEAD_NS, LOOKS_AHEAD_SHARE * longest)

    def _evaluated_batch(self) -> None:
        """Called when the last evaluation batch, if there is one, was used."""
        if self.graph_nodes is not None:
            self.evaluated_batches.ended(self.graph_nodes())

    def _evaluated_without_loader(self, other_nodes: float) -> None:
        """Called after the end of an evaluation. `other_nodes`: what autograd's graph has grown by since then."""
        if self.graph_nodes is not None:
            self.evaluated_batches.evaluation_ended(self.graph_nodes(), other_nodes)

    def fetch_stop(self, training: bool, loader: int) -> None:
        """Called when the loader is exhausted or its fetch raised."""
        self._evaluated_batch()
        self.enter(EVALUATION if not training and self.evaluates and self._looks_ahead() else GAP)
        if training:
            self.unconsumed = None
            self.exhausted = self.loaders.get(loader) == TRAINING
            self.fetched[loader] -= 1
            if self.fetched[loader] == 0:
                del self.fetched[loader]
            elif not self.backward_seen and loader not in self.loaders:
                # none of its batches got a backward; with look-ahead it may still come
                self.loaders[loader] = EVALUATING
                self._doubtful = loader
                self._in_no_grad = False
                del self.fetched[loader]
        elif self._in_no_grad:
            self._doubtful = -1

    def loader_started(self, loader: int, evaluating: bool, began: int) -> None:
        """Called after creating an iterator and starting its workers, which took from `began` until now."""
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
        """Returns the phase to go back to. The end of an epoch counts as part of the next epoch's start."""
        phase, evaluation = self.phase, self.loaders.get(loader) == EVALUATING
        now = self.enter(EVALUATION if evaluation else INPUT)
        if not evaluation and self.stepped:
            self._close(now)
        return phase

    def backward_begin(self) -> bool:
        """Returns False for a nested backward."""
        if self.phase == BACKWARD:
            return False
        if self.evaluates:
            self._end_evaluation()
        # gap, clip: the forward of a second optimizer or loss; optimizer: inside a closure; start: nothing was marked before
        self.enter(BACKWARD, FORWARD if self.phase in (GAP, CLIP, OPTIMIZER, START) else -1)
        if self.untrained.batches:
            self._end_untrained(self._doubtful if self.unconsumed is None else self.unconsumed[0], self.since)
        if self.unconsumed is not None:
            self._consume()
        elif self._doubtful >= 0 and self._trains_after_all(self._doubtful):
            self.loaders[self._doubtful] = TRAINING
        self._doubtful = -1
        return True

    def _trains_after_all(self, loader: int) -> bool:
        """Reclassifies the last evaluation batch, which got a backward; a batch fetched under no_grad only if this recurs."""
        if not self._in_no_grad:
            return True
        self._ungraded[loader] = self._ungraded.get(loader, 0) + 1
        return TRAINING not in self.loaders.values() and self._trains_ungraded(loader)

    def _trains_ungraded(self, loader: int) -> bool:
        return self._ungraded.get(loader, 0) >= UNGRADED_TRAINS_AFTER

    def _consume(self) -> None:
        """Classifies this step's loaders: those fetched as often as the last one feed training, the others do not."""
        last = self.unconsumed[0]
        self.unconsumed = None
        self.loader = last
        if len(self.fetched) == 1 and last in self.loaders:  # the common case
            self.loaders[last] = TRAINING
            return
        often = self.fetched[last]
        for loader, times in self.fetched.items():
            if times == often:
                self.loaders[loader] = TRAINING
            else:
                self.loaders.setdefault(loader, EVALUATING)

    def backward_end(self) -> None:
        inside, self.updated_inside = self.updated_inside, False
        if inside:
            self.optimizer_depth = 0  # an optimizer that raised has no end mark
        now = self.enter(OPTIMIZER if self.optimizer_depth else GAP if inside else CLIP)
        self.backwards += 1
        self.backward_seen = True
        self._gradients = not inside
        if inside:
            if self.optimizer_turns.ends_with(INSIDE_BACKWARD):
                self._close(now)
        elif not self.fetched and self._optimizer_invisible():
            self._close(now)  # the loop updates its parameters manually

    def optimizer_begin(self, optimizer: int) -> None:
        if self.optimizer_depth == 0:
            inside = self.phase == BACKWARD
            if not (inside and self.updated_inside):  # all optimizers run by hooks of one backward count as one
                self.optimizer_turns.begin(
                    INSIDE_BACKWARD if inside else optimizer, self.last_optimizer, stepped=self.stepped
                )
            self.updated_inside = inside
            # the next batch was fetched between backward and optimizer, so this is not a forward
            late = self.phase == FORWARD and self._gradients and self.unconsumed is not None
            self.enter(OPTIMIZER, CLIP if late else -1)
        self.optimizer_depth += 1

    def optimizer_end(self, optimizer: int, stepped: bool = True) -> None:
        self.optimizer_depth = max(0, self.optimizer_depth - 1)
        if stepped:
            self.stepped = True
            self.optimizers += 1
            self.updates += 1
            self.last_optimizer = INSIDE_BACKWARD if self.updated_inside else optimizer
        if self.optimizer_depth:
            return
        if self.updated_inside:
            self.enter(BACKWARD)
            return
        self._gradients = False
        now = self.enter(GAP)
        if self.optimizer_turns.ends_with(optimizer):
            self._close(now)

    def updated_in_hooks(self, updates: list[tuple[int, int, int]]) -> None:
        """Adds optimizer steps (begin, end, id) that hooks ran in other threads during this thread's backward, as if in this one."""
        clock, replaying = self.clock, self.replaying
        self.replaying = True  # wall time only: the CPU clocks belong to this thread
        try:
            for began, ended, optimizer in sorted(updates):
                # threads of several devices may step concurrently
                self.clock = partial(max, began, self.since)
                self.optimizer_begin(optimizer)
                self.clock = partial(max, ended, self.since)
                self.optimizer_end(optimizer)
        finally:
            self.clock, self.replaying = clock, replaying

    @property
    def inside_backward(self) -> bool:
        return self.phase == BACKWARD or self.updated_inside

    def leave(self) -> None:
        self._end_untrained(-1, self.clock())
        super().leave()

    def evaluation_begin(self) -> None:
        """Called when the training model is put into `eval()` mode.

        Training mode ends the evaluation, or the next fetch or backward pass for training.
        """
        self.evaluates = True
        self._before_evaluation = self.phase
        if self.graph_nodes is not None:
            self.evaluated_batches.evaluation_begun(self.graph_nodes())
        self.enter(EVALUATION)

    def evaluation_end(self) -> None:
        """Called when the model is put back into training mode. Afterwards loaders show what is evaluation."""
        self.evaluates = False
        self._evaluated_without_loader(0.0)
        if self.phase == EVALUATION:
            self.enter(self._before_evaluation)

    def _end_evaluation(self) -> None:
        """Called at the next backward pass of a model that was not put back into training mode.

        No mark separates its forward from the evaluation, so the last forward's length is assumed. A model that is trained in `eval()` mode
        has not been evaluated.
        """
        self.evaluates = False
        trains_so = self.in_eval_mode()
        if trains_so:
            self.trained_in_eval_mode()
        elif self.nodes.steps:
            self._evaluated_without_loader(self.nodes.nodes / self.nodes.steps)  # of the forward pass that has followed
        if self.phase != EVALUATION:
            return
        if not trains_so:
            clock = self.clock
            self.clock = partial(max, self.since, clock() - self.last_forward_ns)
            self.enter(FORWARD)
            self.clock = clock
        elif self._evaluation_began == self.since:
            self._evaluation_began = 0
            self.enter(FORWARD, FORWARD)

    def update_skipped(self) -> None:
        """Called after GradScaler found inf or nan: the skipped update counts as a step, with a flag."""
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

    def _optimizer_invisible(self) -> bool:
        if self.optimizers == 0 and self.backward_seen and self.backwards > INVISIBLE_OPTIMIZER_AFTER:
            self.flags |= FLAG_NO_OPTIMIZER
            return True
        return False
