"""The recorder of one process of the job. The process becomes a rank or a worker by its actions.

`patches` calls every method here in a wrapper that swallows and counts exceptions.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import rank_ring_folder
from .comm.ddp_stamps import DdpStamps
from .evaluation_calls import Evaluations
from .facts import process_facts
from .facts.affinity_facts import affinity_facts
from .facts.backward_nodes import BackwardNodes
from .facts.batch_digests import BatchDigests
from .facts.batch_facts import BatchSamples
from .facts.denormal_numbers import Denormals
from .facts.discarded_gradients import DiscardedGradientLooks
from .facts.embedding_tables import EmbeddingTables
from .facts.known_loaders import KnownLoaders
from .facts.optimizer_holdings import (
    OptimizerPlaces,
    describe_convolutions,
    describe_holdings,
    describe_optimizer,
    held_at_end,
)
from .facts.precision_facts import Precision, fast_paths
from .facts.unused_gradients import UnusedGradientLooks
from .facts.work_facts import Work
from .garbage import Garbage
from .gpu.device_syncs import Syncs
from .gpu.gpu_events import GpuTimes
from .gpu.graph_captures import Captures
from .gpu.profiler_window import asked
from .layout import ERRORS_MAX, PHASES, RANK_SLOTS, ROLE_RANK
from .patches.checkpoint_saves import Saves
from .patches.hooked_updates import Hooked
from .patches.pinning import Pinning
from .raised_exceptions import exception_facts, uncaught
from .ring import Ring
from .steps.mark_buffer import BUFFERED_NS, SHORT_STRETCHES_MAX, MarkBuffer
from .steps.mark_costs import mark_ns
from .steps.plain_steps import may_be_counted
from .steps.step_account import PLAIN_STEP_MARKS, Account
from .steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP, INPUT, OPTIMIZER
from .steps.untrained_batches import shows_evaluation
from .thread_clocks import RunDelay
from .training_thread import TrainingThread, is_native
from .wall import let_pass
from .workers.batch_size import count_samples
from .workers.picture_numbers import CHECKED_STEPS, describe_pictures
from .workers.sample_profiles import budget_share
from .workers.worker_batches import Drawing, InProcess, WorkerLog, own_loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..documents.rank_documents import OptimizerFacts
    from .gpu.profiler_window import ProfilerWindow

_OPTIMIZER_LOOKS = 3  # the optimizer creates its state in its first step
_FETCH_MARKS_MAX = (
    32  # four per batch: in a step of sixteen or more batches, only every second, third … fetch is recorded
)
_NO_MEMORY = "out of memory"
_THREAD_WRITTEN_EVERY_NS = 1_000_000_000  # a job may start a new thread for each step


class Recorder(TrainingThread):
    def __init__(self, torch: Any, folder: str) -> None:
        self.torch = torch
        self.folder = folder
        self.began_ns = perf_counter_ns()
        self.buffer = MarkBuffer()
        self.garbage = Garbage()
        self.affinity: Any = None  # what sitecustomize has seen of it
        self.foreign: Any = None  # a Foreign, once installed
        self.collectives: Any = None  # a Collectives, once installed
        self.captures = Captures()
        self.captures.before = self._before_capture
        self.precision = Precision(torch, lambda: self.facts.values, self.failed)
        self.syncs = Syncs(torch, self.failed, self.captures)
        self.forget()
        os.register_at_fork(before=self.before_fork, after_in_child=self.forget)

    def forget(self) -> None:
        """Resets in a new or forked process: nothing is known about it, and it must not write to the parent's ring."""
        self.active = True
        self.buffer.forget()
        self.errors = 0
        self.worker: WorkerLog | None = None
        self.forget_threads()
        self._thread_written_ns = 0
        if self.foreign is not None:
            self.foreign.forget()
        self.captures.forget()
        self.precision.forget()
        self.syncs.forget()
        self.hooked = Hooked()
        self.in_process: InProcess | None = None
        self.drawing = Drawing()
        self.pinning = Pinning()
        self.place = -1  # epoch index of the batch being fetched, if it is to be recorded
        self.stamps = DdpStamps()
        self.gpu: GpuTimes | None = None
        self.captured_update: weakref.ref[Any] | None = (
            None  # the latest optimizer that ran while a CUDA graph was captured
        )
        self.facts = process_facts.Facts(self.folder)
        self.work = Work(self.facts)
        self.denormals = Denormals(self.facts)
        self.tables = EmbeddingTables(self.facts, self.precision.trained)
        self.optimizers = OptimizerPlaces()
        self.unused = UnusedGradientLooks(self.facts, self.precision.called, self.optimizers.known)
        self.discarded = DiscardedGradientLooks(self.facts, self.optimizers.of)
        self.nodes = BackwardNodes(self.facts, self.unused.updated)
        self.batch_samples = BatchSamples(self.facts)
        self.loaders = KnownLoaders()
        self.digests = BatchDigests(self.facts, self.loaders.described)
        self.iterators: dict[int, int] = {}  # loader -> id of the iterator last used by the training thread
        # steps from which on a batch's images are inspected, until their kind is known
        self.looks = list(CHECKED_STEPS)
        self.saves = Saves()
        self.evaluations = Evaluations()
        self.garbage.events.clear()
        self.refresh_at = self.due_at = 1
        self.asks_for_aids = False  # at the next backward
        self.deep: ProfilerWindow | None = None  # set if a deep window was requested
        self._evaluating = not_in_training(self.torch)

    def before_fork(self) -> None:
        """Called before a fork: the child would inherit the forking thread's profiler and keep its records for ever."""
        if self.deep is not None:
            self.deep.give_way("a process was forked")

    def _before_capture(self) -> None:
        """Called before a graph capture, because stopping the profiler synchronises."""
        if self.deep is not None:
            self.deep.give_way("a CUDA graph was captured")

    def failed(self) -> None:
        """Records an exception that a wrapper swallowed."""
        let_pass()
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.active = self.buffer.on = False
        account = self.account
        if account is not None:
            account.errors = self.errors
            if account.ring is not None:
                account.ring.cost(account.self_ns, self.errors)
        error = sys.exc_info()[1]
        if self.errors <= 3:
            try:
                rank_ring_folder.note_error(self.folder, "%s: %s" % (type(error).__name__, error))
            except Exception:
                pass  # no place to write it, or its text fails: it is counted

    # -- role of the process ---------------------------------------------------------------------------------------------------

    def make_account(self) -> Account:
        account = Account(thread=get_ident(), garbage=self.garbage)
        account.on_step = self._stepped
        account.untrained.evaluates = lambda: shows_evaluation(self.precision.trained())
        account.to_marked = self.buffer.thinned.to_marked
        account.graph_nodes = getattr(getattr(self.torch, "autograd", None), "_get_sequence_nr", None)
        account.in_eval_mode, account.trained_in_eval_mode = self.evaluations.goes_on, self.evaluations.trains_so
        self.in_process = InProcess(account, self.folder, self.failed)
        return account

    def thread_changed(self, account: Account) -> None:
        account.goes_on_in(get_ident(), RunDelay() if account.ring is not None else None)
        self.digests.end()  # this thread's batches until now were not seen
        if self.in_process is not None:
            self.in_process.goes_on()
        self.facts.values["main_thread"] = self.native_id
        now = perf_counter_ns()
        if now - self._thread_written_ns >= _THREAD_WRITTEN_EVERY_NS:
            self._thread_written_ns = now
            self.facts.write()

    def become_rank(self, account: Account, roots: Any) -> None:
        rank, local_rank, world_size = process_facts.distributed_identity(self.torch)
        path = "%s/rank-%d.ring" % (self.folder, os.getpid())
        ring = Ring(path, slots=RANK_SLOTS, role=ROLE_RANK, rank=rank, local_rank=local_rank, world_size=world_size)
        delay = RunDelay()
        account.become_rank(ring, delay)
        atexit.register(self.leave)
        # multiprocessing children end by os._exit, which skips atexit
        sys.modules["multiprocessing.util"].Finalize(None, self.leave, exitpriority=-100)
        self.facts.values.update(process_facts.process_facts(self.torch))
        self._describe_affinity()
        self._trains_on(roots)
        self.facts.values.update({"rank": rank, "local_rank": local_rank, "world_size": world_size})
        self.facts.values["main_thread"] = self.native_id
        self.facts.values["run_delay"] = bool(delay)
        self.facts.values["indices_timed"] = True
        self.buffer.thinned.budget = budget_share(self.folder)
        self.deep = asked(self.torch, self.folder, self.facts, rank, local_rank, self.captures)
        self.facts.active = True
        if self.collectives is not None:
            self.collectives.joins(world_size)
        if self.foreign is not None:
            self.foreign.look()
        self.facts.write()

    def _describe_affinity(self) -> None:
        try:
            self.facts.values.update(affinity_facts(self.affinity))
        except Exception as error:
            let_pass()
            self.facts.miss("affinity: %s" % error)

    def _trains_on(self, tensors: Any) -> None:
        """Uses the GPU of the trained tensors, which may not be the current device."""
        if self.facts.values.get("cuda") is not None or self.captures.under_way:
            return
        try:
            device = process_facts.cuda_index(tensors)
            if device is not None:
                self.facts.values["cuda"] = {**process_facts.cuda_facts(self.torch, device), **fast_paths(self.torch)}
                self.gpu = GpuTimes(self.torch.cuda, device, self.captures)
        except Exception as error:
            self._gpu_failed(error)

    def leave(self) -> None:
        """Called at interpreter shutdown, without a wrapper, so it catches its own exceptions."""
        ring = None if self.account is None else self.account.ring
        try:
            if self.active and ring is not None:
                self.active = False
                if self.deep is not None:
                    self.deep.give_way("the job ended within it")
                if self.collectives is not None:
                    self.collectives.leaves()
                if self.buffer.on:
                    self.buffer.flush_into(self.account)
                self._say_goodbye(self.account)
            elif self.active and self.worker is None and getattr(sys, "last_value", None) is not None:
                self._note_failure()
        except Exception:
            self.active = False
        if ring is not None:
            ring.end()  # also after failures: this process was not killed

    def _note_failure(self) -> None:
        """Records the exception of a process that has not trained: a launcher, or a rank that fails before its first backward."""
        self.active = False
        self.facts.active = True
        self.facts.values["rank"] = process_facts.distributed_identity(self.torch)[0]
        if self.account is not None:
            self.facts.values["loaders"] = self.loaders.facts(self.account)
        self._note_exception()
        self.facts.write()

    def _note_exception(self) -> None:
        error = uncaught()
        if error is not None:
            marked = PHASES[self.account.phase] if self.account is not None else ""
            self.facts.values["exception"] = exception_facts(self.torch, error, marked)
            if _NO_MEMORY in str(error):
                self.facts.values["held_at_end"] = held_at_end(self.torch, error, self._device())

    def _device(self) -> str:
        """The recorded device in tensors' notation; empty without a GPU."""
        cuda = self.facts.values.get("cuda")
        return "cuda:%d" % cuda["device"] if cuda else ""

    def _say_goodbye(self, account: Account) -> None:
        try:
            self._note_exception()
            self._sum_up()
            self.facts.write()
        finally:
            account.leave()
        if rank_ring_folder.owner_is_gone(self.folder):
            rank_ring_folder.remove(*os.path.split(account.ring.path))  # no reader is left, and it occupies memory

    def _sum_up(self) -> None:
        values = self.facts.values
        values["loaders"] = self.loaders.facts(self.account)
        values["save_sites"] = self.saves.facts()
        values["evaluation_sites"] = self.evaluations.facts()
        evaluated = self.account.evaluated_batches
        values["evaluation_batches"] = [evaluated.batches, evaluated.with_gradients]
        counted = self.account.nodes
        if counted.steps:
            values["operations"] = {
                "steps": counted.steps,
                "nodes": counted.nodes,
                "low_ns": counted.low_ns(),
                "by_step": [[*count] for count in counted.by_step],
            }
        if self.crowded:
            values["several_threads_train"] = True
        if self.gpu is not None and self.gpu.dropped:
            values["gpu_steps_dropped"] = self.gpu.dropped
        try:
            process_facts.note_compilations(values, now_ns=perf_counter_ns(), wall_us=1e6 * time.time())
        except Exception:  # dynamo's records may differ in other torch versions; the other facts are still written
            let_pass()

    # -- marks -----------------------------------------------------------------------------------------------------------------

    def _stepped(self, step: int) -> None:
        if self.gpu is not None:
            try:
                self.gpu.close(step - 1, self.account.ring)
            except Exception as error:
                self._gpu_failed(error)
        if step >= self.due_at:
            self._due()
        self._note_or_mark(self.account)

    def _gpu_mark(self, ended: str) -> None:
        try:
            self.gpu.mark(ended)  # type: ignore[union-attr]
        except Exception as error:
            self._gpu_failed(error)

    def _gpu_failed(self, error: Exception) -> None:
        """Stops GPU events after an error (the job changes its device between marks, say). Steps are recorded without them."""
        let_pass()
        self.gpu = None
        self.facts.miss("gpu times: %s" % error)

    def flush_buffer(self, iterator: Any) -> None:
        """Called when the buffer is full and its last mark is this iterator's fetch."""
        account = self.account
        self.buffer.flush_into(account)
        if account.begin_step():
            began = perf_counter_ns()
            if self.stamps.any:
                self._read_stamps(account, account.step - 2, account.last_step_ns)
            if account.step >= self.due_at:
                self._due()
            self._watch_fetch(account, iterator)
            account.self_ns += perf_counter_ns() - began
            self._note_or_mark(account)

    def _note_or_mark(self, account: Account) -> None:
        """Decides at a step's start whether its marks are buffered, and for how many steps."""
        if account.replaying:
            return
        watched = self.discarded.turn(account.step) | self.unused.turn(account.step)
        watched |= self.gpu is None and self.nodes.turn(account.step)
        timed = self.gpu is not None and self.gpu.turn(account.step, account.t_start, account.self_ns)
        if timed and self.collectives is not None and self.collectives.on_gpu:
            self.gpu.choose_waits(account.step)  # type: ignore[union-attr]
        if timed or watched or account.clocked or self.crowded or not self.active:
            return
        if self.syncs.open or self.asks_for_aids:  # they concern one step, not several
            return
        if self.digests.open and self.digests.counts(account.step):  # no batch is seen while marks are buffered
            return
        # the loop has neither of the marks that check for a full buffer
        if account.optimizers == 0 and account.last_loader < 0:
            return
        if self.deep is not None and self.deep.on:  # its steps must start and end on time
            return
        # in a step of several backward passes each may be stamped, so its marks are processed one by one
        stamped = self.stamps.steps_to_read(account.step) - (account.fewest_marks != PLAIN_STEP_MARKS)
        steps = min(account.steps_to_clock(), max(1, BUFFERED_NS // max(account.last_step_ns, 1)), stamped)
        if self.deep is not None:
            steps = min(
                steps, self.deep.next_step - account.step
            )  # it starts at the start of a step, not of several buffered ones
        if self.gpu is not None:
            steps = min(steps, self.gpu.next_step - account.step)  # steps with events, too
        if steps > 0 and account.fewest_marks > 0:
            loader = account.last_loader
            iterator, thinned = self.iterators.get(loader, 0), self.buffer.thinned
            steps = min(steps, thinned.steps_alike(account.step))
            counted = thinned.to_marked(account.step) > 0 and self._may_be_counted(account, iterator)
            self.buffer.start(account, steps, self.loaders.batch_size(loader), iterator, counted=counted)

    def _may_be_counted(self, account: Account, iterator: int) -> bool:
        buffer = self.buffer
        if not buffer.usual.offsets or buffer.short_stretches >= SHORT_STRETCHES_MAX:
            return False
        return bool(iterator or account.last_loader < 0) and may_be_counted(account)

    def _due(self) -> None:
        """Called at the start of a step with scheduled work."""
        step = self.account.step
        if step >= self.precision.until:
            self.precision.disarm()
        if step >= self.refresh_at:
            self._refresh_facts()
            self.discarded.asked(step, needed=self._mixes_passes())
        self.due_at = min(self.refresh_at, self.precision.until)
        if self.deep is not None:
            if step >= self.deep.next_step:
                self.deep.at_step(self.account)
            self.due_at = min(self.due_at, self.deep.next_step)
        profiled = self.deep is not None and self.deep.on
        if step >= self.syncs.due and not self.account.replaying and (self.syncs.open or not profiled):
            self.syncs.turn(step, self.account, self.facts.values)
        self.due_at = min(self.due_at, self.syncs.due)

    def _mixes_passes(self) -> bool:
        """True with several optimizers or backward passes: a single pass for a single optimizer throws nothing away."""
        account = self.account
        plain = PLAIN_STEP_MARKS if account.last_loader >= 0 else PLAIN_STEP_MARKS - 2
        return account.fewest_marks > plain or self.discarded.optimizers > 1

    def _refresh_facts(self) -> None:
        step = self.account.step
        if self.foreign is not None:
            self.foreign.look()
        # at growing intervals
        self.refresh_at = step + 1 if step < 4 else 50 if 25 <= step < 50 else 2 * step
        values = self.facts.values
        self._sum_up()
        values["visible_optimizer"] = self.account.optimizers > 0
        self.precision.refresh(step)
        self.asks_for_aids = step >= process_facts.AIDS_FROM_STEP
        self.due_at = min(self.due_at, self.precision.until)
        self.facts.write()

    def fetch_begin(self, iterator: Any) -> tuple[Account, bool, int] | None:
        """Returns the account and whether the fetch may train, or None if this thread is not recorded."""
        began = perf_counter_ns()
        account = self.own_account()
        loader = getattr(iterator, "_rn50_loader", -1)
        if account is None:
            if self.worker is None:
                self.fetches(loader)
            return None
        if self.foreign is not None and self.foreign.inside:
            return None
        if account.phase == INPUT:  # a dataset that iterates over its own loader: part of the running fetch
            return None
        if loader >= 0:
            self.iterators[loader] = id(iterator)
        token = self.begin_fetch(account, loader, iterator._num_yielded == 0, began)
        if token[1]:
            self._watch_fetch(account, iterator)
        return token

    def _watch_fetch(self, account: Account, iterator: Any) -> None:
        """Times, in a clocked step, drawing the indices and, without workers, loading and pinning the batch."""
        if not account.clocked:
            return
        self.drawing.watch(iterator)
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None and self.in_process is not None:
            self.in_process.watch(fetcher)
            if getattr(iterator, "_pin_memory", False):
                self.pinning.watch(getattr(iterator, "_rn50_loader", -1))
        elif account.fewest_marks > PLAIN_STEP_MARKS:  # the step's sums do not separate its fetches
            place = iterator._num_yielded
            self.place = -1 if place % max(1, account.fewest_marks // _FETCH_MARKS_MAX) else place

    def begin_fetch(self, account: Account, loader: int, first: bool, began: int) -> tuple[Account, bool, int]:
        """Called when the next batch is requested from a source; `first`: the first of an epoch."""
        if account.step == 0:
            self.precision.begin()
        training = account.fetch_begin(loader, self._evaluating(), first)
        if training and self.gpu is not None:
            self._gpu_mark("gap")
        account.self_ns += perf_counter_ns() - began
        return account, training, loader

    def fetch_end(self, token: tuple[Account, bool, int], batch: Any) -> None:
        began = perf_counter_ns()
        account, training, loader = token
        if self.in_process is not None:
            self.in_process.release()
        self.pinning.release()
        self.drawing.release(account, loader)
        asked = account.since
        account.fetch_end(training, count_samples(batch, self.loaders.batch_size(loader)) if training else 0)
        self.loaders.weigh(loader, batch)
        if self.digests.open and loader >= 0:
            self.digests.batch(loader, batch, training, account.loaders)
        if training and account.clocked:
            if self.place >= 0:
                account.span("fetch", asked, account.since, 0, self.place, loader)
                self.place = -1
            self.pinning.write_growth(account)
            if self.work.sampled(account.step, began):
                self.work.batch(batch)
            self.batch_samples.batch(batch)
        if training and self.looks and account.step >= self.looks[0]:
            self._look_at(batch)
        if training and self.gpu is not None:
            self._gpu_mark("input_wait")
        account.self_ns += perf_counter_ns() - began

    def _look_at(self, batch: Any) -> None:
        self.looks.pop(0)
        found = describe_pictures(batch)
        if found is None or found["from_bytes"] is not None or found["device"] != "cpu" or found["dtype"] == "uint8":
            self.looks.clear()  # no images, or nothing more to learn about them
        if found is not None:
            self.facts.update({"pictures": found})

    def fetch_failed(self, token: tuple[Account, bool, int]) -> None:
        """Called when the loader is exhausted or raised."""
        account, training, loader = token
        if self.in_process is not None:
            self.in_process.release()
        self.pinning.release()
        self.place = -1
        self.drawing.release(account, loader)
        if self.buffer.on:
            self.buffer.flush_into(account)
        account.fetch_stop(training, loader)

    def backward_begin(self, roots: Any = None) -> Account | None:
        began = perf_counter_ns()
        account = self.training_account(roots)
        if account is None:
            # activation checkpointing runs another backward in autograd's thread; a Python thread's backward is its own training
            if self.account is not None and not (is_native() and self.runs_in_a_hook()):
                self.trains_too()
            return None
        if not account.backward_begin():
            return None
        if account.backwards < _OPTIMIZER_LOOKS or self.asks_for_aids:
            self.evaluations.loop_runs()
        if self.gpu is not None:
            self._gpu_mark("forward")
        if self.stamps.any and account.backwards:
            since = account.wall[FORWARD] + account.wall[BACKWARD] + account.wall[OPTIMIZER]
            self._read_stamps(account, account.step if account.backward_seen else account.step - 1, since)
        if self.asks_for_aids:
            self.asks_for_aids = False
            process_facts.count_aids(
                self.torch, self.facts.values, profiled_by_us=self.deep is not None and self.deep.on
            )
        if self.discarded.open:
            self.discarded.backward_begins(roots, inner=account.optimizer_depth > 0)
        if self.unused.open:
            self.unused.backward_begins(roots)
        if self.nodes.open:
            self.nodes.backward_begins(roots)
        account.self_ns += perf_counter_ns() - began
        return account

    def _read_stamps(self, account: Account, step: int, step_ns: int) -> None:
        try:
            self.stamps.read(account.ring, step, step_ns, self.facts.values.get("cuda") is not None)
        except Exception:
            # a wrapper without DDP's logger (its Python reducer): phases are recorded without stamps
            self.stamps.any = False
            self.facts.miss("ddp: no stamps")

    def backward_end(self, account: Account) -> None:
        began = perf_counter_ns()
        if self.nodes.open:
            self.nodes.backward_ends()
        if self.discarded.open:
            self.discarded.backward_ends()
        if self.gpu is not None:  # before the account, as with the optimizer
            self._gpu_mark("backward")
        updates = self.hooked.take(account.since)
        if updates:
            account.updated_in_hooks(updates)
            account.self_ns += 2 * len(updates) * mark_ns(account.last_step_ns)
        account.backward_end()
        account.self_ns += perf_counter_ns() - began

    def optimizer_begin(self, optimizer: Any) -> None:
        began = perf_counter_ns()
        account = self.own_account()
        if account is None:
            if not self.runs_in_a_hook():
                self.trains_too()
            elif self.buffer.on:  # the buffer is full
                self.buffer.mark_full()
            else:
                self.hooked.begin()
        else:
            account.optimizer_begin(id(optimizer))
            if self.captures.under_way:
                self.captured_update = weakref.ref(optimizer)
            first = account.clocked and account.optimizer_depth == 1
            if first and self.work.sampled(account.step, began, fetched_unobserved=account.micro_batches > 0):
                self.work.optimizer(optimizer)
                self.evaluations.trains(optimizer)
                self.denormals.look(optimizer, account.step)
                self.tables.look(optimizer, account.step)
                self.unused.look(optimizer, account.step)
            self.discarded.optimizer_begins(optimizer, inner=account.optimizer_depth > 1)
            if account.optimizers < _OPTIMIZER_LOOKS:
                self._describe_optimizer(optimizer)
            account.self_ns += perf_counter_ns() - began

    def _describe_optimizer(self, optimizer: Any) -> None:
        """Records an optimizer at its first step, and again once its state exists."""
        self.evaluations.trains(optimizer)
        self._trains_on(
            optimizer.param_groups[0]["params"]
        )  # in case the loss was copied from the GPU before its backward
        found: OptimizerFacts = {**describe_optimizer(optimizer), **self.optimizers.of(optimizer)}
        known = self.facts.values.get("optimizer")
        if known is None or {**known, **found} == known:
            held, convolutions = (
                describe_holdings(optimizer, self._device()),
                describe_convolutions(self.torch, optimizer),
            )
            self.facts.values["optimizer"] = {**found, **held, **convolutions}

    def optimizer_end(self, optimizer: Any, stepped: bool = True) -> None:
        began = perf_counter_ns()
        account = self.own_account()
        if account is not None:
            # before the account: it may close the step, and this is the step's last event
            # optimizer steps per parameter inside the backward count as backward: they would need too many events
            if self.gpu is not None and account.optimizer_depth <= 1 and not account.updated_inside:
                self._gpu_mark("optimizer")
            account.optimizer_end(id(optimizer), stepped)
            account.self_ns += perf_counter_ns() - began
        elif self.buffer.on:
            self.buffer.update_ended_elsewhere()
        else:
            self.hooked.end(id(optimizer))

    def loader_made(self, loader: Any) -> None:
        self.loaders.add(loader)

    def iterator_made(self, iterator: Any, loader: Any, began: int) -> None:
        iterator._rn50_loader = self.loaders.numbers.get(loader)
        self.epoch_begun(iterator, began)

    def epoch_begun(self, iterator: Any, began: int) -> None:
        # the next fetch is the first of an epoch and must be processed, not only buffered, even with the same iterator, another
        # one at the same address, or another thread
        self.iterators.pop(iterator._rn50_loader, None)
        if id(iterator) == self.buffer.iterator:
            self.buffer.iterator = 0
        account = self.own_account()
        if account is not None:
            account.loader_started(iterator._rn50_loader, self._evaluating(), began)

    def workers_end(self, iterator: Any) -> int | None:
        """Called when an epoch's workers are stopped: in the last fetch, or when the loop drops the iterator."""
        known = self.account
        if known is None or known.replaying or self.garbage.under_way or getattr(iterator, "_shutdown", True):
            return None
        account = self.own_account()
        if account is None or account.ring is None or account.phase not in (FORWARD, GAP):
            return None
        return account.workers_end(iterator._rn50_loader)

    def workers_ended(self, phase: int) -> None:
        account = self.own_account()
        if account is not None:
            account.enter(phase)

    def table_made(self, table: Any) -> None:
        self.tables.made(table)

    def ddp_made(self, model: Any) -> None:
        self.precision.begin()
        options = self.stamps.register(model)
        if options:
            made = self.facts.values.setdefault("ddp", [])
            if len(made) < process_facts.MADE_MAX:
                made.append(options)
            if self.collectives is not None:
                self.collectives.broadcasts(model, options)

    def evaluation_begins(self, module: Any) -> None:
        """Called before a module is put into `eval()` mode."""
        account = self.own_account() if self.account is not None else None
        if account is None or account.ring is None:
            return
        another = account.evaluates and account.phase == EVALUATION  # right after the last one: only its place is new
        if (another or account.phase in (FORWARD, CLIP, GAP)) and self.evaluations.starts(module) and not another:
            account.evaluation_begin()

    def evaluation_ends(self, _: Any) -> None:
        """Called after the evaluated model was put back into training mode."""
        if self.account is not None and self.account.evaluates and (account := self.own_account()) is not None:
            account.evaluation_end()

    def save_begin(self, file: Any = None, saved: Any = None) -> Any:
        token = self.saves.begin(self.own_account() if self.account is not None else None, saved)
        return None if token is None else (token, file)

    def save_end(self, begun: Any) -> None:
        token, file = begun
        if self.saves.end(token):
            self._refresh_facts()
        self.saves.until_closed(token[0], file, self.failed)

    def fsync_begin(self) -> Any:
        return self.saves.fsync_begin(self.own_account() if self.account is not None else None)

    def fsync_end(self, token: Any) -> None:
        self.saves.fsync_end(token)

    # -- workers ---------------------------------------------------------------------------------------------------------------

    def become_worker(self, worker: int, queue: Any = None) -> None:
        """Starts recording as a loader worker. `queue`: the queue for its batches."""
        if rank_ring_folder.owner_is_gone(self.folder):
            # nobody is left to read or remove its ring: the rings of many epochs would fill /dev/shm
            self.garbage.stop()
            self.active = False
            return
        self.garbage.events.clear()  # a forked process inherits its parent's
        self.worker = WorkerLog(self.folder, os.getpid(), worker, own_loader(), queue, self.garbage)


def not_in_training(torch: Any) -> Callable[[], bool]:
    """A function that returns True under `no_grad` or `inference_mode`."""
    enabled = torch.is_grad_enabled
    return lambda: not enabled()
