"""Marks of backward passes and updates, and the facts that the recorder collects around them.

On CUDA, autograd runs gradient hooks in one thread per device while the thread that called `backward` waits. Optimizer steps of these
hooks are recorded apart; the training thread reads them when its backward ends.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .backward.backward_nodes import BackwardNodes
from .backward.discarded_gradients import DiscardedGradientWatch
from .backward.repeated_passes import RepeatedPassWatch
from .backward.unused_gradients import UnusedGradientWatch
from .facts import process_facts
from .facts.denormal_numbers import Denormals
from .facts.embedding_tables import EmbeddingTables
from .facts.optimizer_holdings import OptimizerPlaces, describe_convolutions, describe_holdings, describe_optimizer
from .piled_hooks import HookCounts
from .steps.mark_costs import mark_ns
from .summed_facts import device_of
from .training_thread import is_native

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents.model_documents import OptimizerFacts
    from .recorder import Recorder
    from .steps.step_account import Account

_DESCRIBED_STEPS = 3  # the optimizer creates its state in its first step
UPDATES_MAX = 4096  # steps of one backward, one per parameter; the account counts all of them as one update
THREADS_MAX = 64
NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class PassMarks:
    """Marks of this process's training thread that are not buffered; and of other threads that run parts of its backward passes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        facts, precision = recorder.facts, recorder.precision
        self.hooked = Hooked()
        # the latest optimizer that ran while a CUDA graph was captured
        self.captured_update: weakref.ref[Any] | None = None
        self._untraced = False  # at the last check, which no update has followed so far
        self.denormals = Denormals(facts)
        self.tables = EmbeddingTables(facts, precision.trained)
        self.optimizers = OptimizerPlaces()
        self.unused = UnusedGradientWatch(facts, precision.called, self.optimizers.known)
        self.discarded = DiscardedGradientWatch(facts, self.optimizers.of)
        self.repeated = RepeatedPassWatch(facts, self.unused.updated)
        self.nodes = BackwardNodes(facts, self.unused.updated, self.repeated.again, self.unused.names)
        self.hooks = HookCounts(facts, precision.called, self.optimizers.known)

    def backward_begin(
        self, roots: Any = None, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_ARGUMENTS
    ) -> Account | None:
        """`args`, `kwargs`: of `torch.autograd.backward`."""
        recorder = self._recorder
        began = perf_counter_ns()
        account = recorder.training_account(roots)
        if account is None:
            # activation checkpointing runs another backward in autograd's thread; a Python thread's backward is its own training
            if recorder.account is not None and not (is_native() and recorder.runs_in_a_hook()):
                recorder.trains_too()
            return None
        if not account.backward_begin():
            return None
        if account.backwards < _DESCRIBED_STEPS or recorder.schedule.asks_for_aids:
            recorder.evaluations.loop_runs()
        if recorder.gpu is not None:
            recorder.gpu_mark("forward")
        if recorder.stamps.any and account.backwards:
            pass_ns = account.last_step_ns * account.step // account.backwards
            self.read_stamps(account, account.step if account.backward_seen else account.step - 1, pass_ns)
        if recorder.schedule.asks_for_aids:
            recorder.schedule.asks_for_aids = False
            self._untraced = process_facts.count_aids(
                recorder.torch, recorder.facts.values, profiled_by_us=recorder.deep is not None and recorder.deep.on
            )
        if self.discarded.open:
            self.discarded.backward_begins(roots, inner=account.optimizer_depth > 0)
        if self.unused.open:
            self.unused.backward_begins(roots)
        if self.repeated.open:
            self.repeated.backward_begins(roots, args, kwargs)
        if self.nodes.open:
            self.nodes.backward_begins(roots)
        account.self_ns += perf_counter_ns() - began
        return account

    def read_stamps(self, account: Account, step: int, pass_ns: int) -> None:
        recorder = self._recorder
        try:
            recorder.stamps.read(account.ring, step, pass_ns, recorder.facts.values.get("cuda") is not None)
        except Exception:
            # a wrapper without DDP's logger (its Python reducer): phases are recorded without stamps
            recorder.stamps.any = False
            recorder.facts.miss("ddp: no stamps")

    def backward_end(self, account: Account) -> None:
        recorder = self._recorder
        began = perf_counter_ns()
        if self.nodes.open:
            self.nodes.backward_ends()
        if self.repeated.open:
            self.repeated.backward_ends()
        if self.discarded.open:
            self.discarded.backward_ends()
        if recorder.gpu is not None:  # before the account, as with the optimizer
            recorder.gpu_mark("backward")
        updates = self.hooked.take(account.since)
        if updates:
            account.updated_in_hooks(updates)
            account.self_ns += 2 * len(updates) * mark_ns(account.last_step_ns)
        account.backward_end()
        account.self_ns += perf_counter_ns() - began

    def optimizer_begin(self, optimizer: Any) -> None:
        recorder = self._recorder
        began = perf_counter_ns()
        account = recorder.own_account()
        if account is None:
            if not recorder.runs_in_a_hook():
                recorder.trains_too()
            elif recorder.buffer.on:  # the buffer is full
                recorder.buffer.mark_full()
            else:
                self.hooked.begin()
        else:
            account.optimizer_begin(id(optimizer))
            if self._untraced:
                self._untraced = False
                process_facts.count_tracer(recorder.facts.values)
            if recorder.captures.under_way:
                self.captured_update = weakref.ref(optimizer)
            first = account.clocked and account.optimizer_depth == 1
            if first and recorder.work.sampled(account.step, began, fetched_unobserved=account.micro_batches > 0):
                recorder.work.optimizer(optimizer)
                recorder.evaluations.trains(optimizer)
                self.denormals.observe(optimizer, account.step)
                self.tables.observe(optimizer, account.step)
                self.unused.observe(optimizer, account.step)
            if self.repeated.open:
                self.repeated.optimizer_begins()
            self.discarded.optimizer_begins(optimizer, inner=account.optimizer_depth > 1)
            if account.optimizers < _DESCRIBED_STEPS:
                self._describe_optimizer(optimizer)
            account.self_ns += perf_counter_ns() - began

    def _describe_optimizer(self, optimizer: Any) -> None:
        """Records an optimizer at its first step, and again once its state exists."""
        recorder = self._recorder
        recorder.evaluations.trains(optimizer)
        # in case the loss was copied from the GPU before its backward
        recorder.trains_on(optimizer.param_groups[0]["params"])
        found: OptimizerFacts = {**describe_optimizer(optimizer), **self.optimizers.of(optimizer)}
        known = recorder.facts.values.get("optimizer")
        if known is None or {**known, **found} == known:
            held = describe_holdings(optimizer, device_of(recorder.facts.values))
            convolutions = describe_convolutions(recorder.torch, optimizer)
            recorder.facts.values["optimizer"] = {**found, **held, **convolutions}

    def optimizer_end(self, optimizer: Any, stepped: bool = True) -> None:
        recorder = self._recorder
        began = perf_counter_ns()
        account = recorder.own_account()
        if account is not None:
            # before the account: it may close the step, and this is the step's last event
            # optimizer steps per parameter inside the backward count as backward: they would need too many events
            if recorder.gpu is not None and account.optimizer_depth <= 1 and not account.updated_inside:
                recorder.gpu_mark("optimizer")
            account.optimizer_end(id(optimizer), stepped)
            account.self_ns += perf_counter_ns() - began
        elif recorder.buffer.on:
            recorder.buffer.update_ended_elsewhere()
        else:
            self.hooked.end(id(optimizer))


class Hooked:
    """Optimizer steps of hooks. Every change is a single operation on a dict or list, so any thread may make it at any time."""

    __slots__ = ("_begun", "_done")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # thread -> start (ns) of its optimizer's step
        self._done: list[tuple[int, int, int]] = []  # begin, end, id of the optimizer

    def begin(self) -> None:
        if len(self._begun) < THREADS_MAX:
            self._begun.setdefault(get_ident(), perf_counter_ns())  # the scaler's step contains the optimizer's own

    def end(self, optimizer: int) -> None:
        began = self._begun.pop(get_ident(), None)
        if began is not None and len(self._done) < UPDATES_MAX:
            self._done.append((began, perf_counter_ns(), optimizer))

    def take(self, since: int) -> list[tuple[int, int, int]]:
        """Returns and removes the updates that began after `since`. Drops updates without an end, which have raised."""
        if self._begun:
            self._begun.clear()
        if not self._done:
            return []
        done, self._done = self._done, []
        return [update for update in done if update[0] >= since]
