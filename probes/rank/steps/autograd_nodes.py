"""Counts the autograd nodes of steps and of evaluations: how many operations recorded gradients.

`created`, in all methods: the number of nodes that this thread has created so far. Reading it takes no lock.
"""

from __future__ import annotations

from collections import deque

COUNTS_MAX = 128  # steps whose number of nodes is kept
_TIMES_MAX = 500  # the latest steps whose CPU time for a node is kept
_NODES_MORE = 1.7  # times the nodes of the forward pass that follows an evaluation: it made some itself
_UNKNOWN = -1


class StepNodes:
    """Nodes created in the forward and backward passes of clocked steps, but the first step.

    `steps`, `nodes`: their sums; `by_step`: (step, nodes) of some of them, over the whole run.
    """

    __slots__ = ("_every", "_in_step", "_since", "_times_ns", "by_step", "nodes", "steps")

    def __init__(self) -> None:
        self.steps = self.nodes = 0
        self.by_step: list[tuple[int, int]] = []
        self._times_ns: deque[int] = deque(maxlen=_TIMES_MAX)  # CPU time for one node
        self._every = 1  # one in so many of these steps is kept in `by_step`
        self._since = self._in_step = 0

    def begin_step(self) -> None:
        self._in_step = 0

    def count(self, created: int, *, computed: bool) -> None:
        """Adds the nodes since the last call if the thread `computed` a forward or backward pass."""
        if computed:
            self._in_step += created - self._since
        self._since = created

    def end_step(self, step: int, cpu_ns: int) -> None:
        """Called at the end of a clocked step. `cpu_ns`: CPU time of its forward and backward passes."""
        if not step or not self._in_step:
            return
        self.steps += 1
        self.nodes += self._in_step
        self._times_ns.append(cpu_ns // self._in_step)
        if self.steps % self._every == 0:
            self.by_step.append((step, self._in_step))
            if len(self.by_step) >= COUNTS_MAX:
                del self.by_step[::2]
                self._every *= 2

    def low_ns(self) -> int:
        """CPU time for one node in the tenth of the steps where it is shortest: other programs make it longer."""
        return sorted(self._times_ns)[len(self._times_ns) // 10]


class EvaluatedBatches:
    """`batches`: number of evaluation batches; `with_gradients`: those with which the graph grew.

    An evaluation without a loader counts as one batch.
    """

    __slots__ = ("_at_batch", "_at_evaluation", "batches", "with_gradients")

    def __init__(self) -> None:
        self.batches = self.with_gradients = 0
        self._at_batch = _UNKNOWN  # nodes when the last evaluation batch came
        self._at_evaluation = (_UNKNOWN, 0)  # nodes at `eval()`, and the evaluation batches until then

    def came(self, created: int) -> None:
        """Called when the loader has delivered a batch."""
        self._at_batch = created

    def ended(self, created: int) -> None:
        """Called when the next batch is requested, or when there is none. Does nothing if no batch came since the last call."""
        before, self._at_batch = self._at_batch, _UNKNOWN
        if before >= 0:
            self._add(created > before)

    def evaluation_begun(self, created: int) -> None:
        """Called when the model was put into `eval()` mode."""
        self._at_evaluation = created, self.batches

    def evaluation_ended(self, created: int, other_nodes: float) -> None:
        """Called when the model trains again. `other_nodes`: what the graph has grown by since the evaluation ended.

        Batches of a loader that came since `evaluation_begun` are counted already.
        """
        (before, batches), self._at_evaluation = self._at_evaluation, (_UNKNOWN, 0)
        if before >= 0 and batches == self.batches:
            self._add(created - before > _NODES_MORE * other_nodes)

    def _add(self, with_gradients: bool) -> None:
        self.batches += 1
        self.with_gradients += with_gradients
