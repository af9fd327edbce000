"""The recorder of one process of the job. The process becomes a rank or a worker by its actions.

`patches` calls every method here in a wrapper that swallows and counts exceptions.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from . import rank_ring_folder
from .comm.ddp_stamps import DdpStamps
from .evaluation_calls import Evaluations
from .facts import process_facts
from .facts.affinity_facts import affinity_facts
from .facts.precision_facts import Precision, fast_paths
from .facts.work_facts import Work
from .frozen.frozen_networks import FrozenNetworks
from .garbage import Garbage
from .gpu.device_syncs import Syncs
from .gpu.gpu_events import GpuTimes
from .gpu.graph_captures import Captures
from .gpu.profiler_window import asked
from .layout import ERRORS_MAX, RANK_SLOTS, ROLE_RANK
from .loader_marks import LoaderMarks
from .pass_marks import PassMarks
from .patches.checkpoint_saves import Saves
from .ring import Ring
from .signal_exceptions import reraise_signal_exception
from .step_schedule import StepSchedule
from .steps.mark_buffer import MarkBuffer
from .steps.step_account import Account
from .steps.step_phases import CLIP, EVALUATION, FORWARD, GAP
from .steps.untrained_batches import shows_evaluation
from .summed_facts import ending_exception, note_exception, sum_up
from .thread_clocks import RunDelay
from .training_thread import TrainingThread
from .workers.sample_profiles import budget_share
from .workers.worker_batches import InProcess, WorkerLog, own_loader

if TYPE_CHECKING:
    from .gpu.profiler_window import ProfilerWindow
    from .trials.rank_trial import RankTrial

_THREAD_WRITTEN_EVERY_NS = 1_000_000_000  # a job may start a new thread for each step


class Recorder(TrainingThread):
    """What this process is, and the parts that record it: `schedule` at starts of steps, `loading` fetches, `passes` the rest of a step."""

    def __init__(self, torch: Any, folder: str) -> None:
        self.torch = torch
        self.folder = folder
        self.buffer = MarkBuffer()
        self.garbage = Garbage()
        self.affinity: Any = None  # what sitecustomize has seen of it
        self.foreign: Any = None  # a Foreign, once installed
        self.collectives: Any = None  # a Collectives, once installed
        self.retired = False  # recorded no more, in a process that goes on
        self.ending: BaseException | None = None  # that ended what was recorded there
        self.trial: RankTrial | None = None  # set if changes are to be tried
        self.captures = Captures()
        self.captures.before = self._before_capture
        self.frozen = FrozenNetworks(self)
        self.precision = Precision(torch, lambda: self.facts.values, self.failed, self.frozen.layer_called)
        self.syncs = Syncs(torch, self.failed, self.captures)
        self.forget()
        os.register_at_fork(before=self.before_fork, after_in_child=self.forget)

    def forget(self) -> None:
        """Resets in a new or forked process: nothing is known about it, and it must not write to the parent's ring."""
        self.active = not self.retired
        self.buffer.forget()
        self.errors = 0
        self.worker: WorkerLog | None = None
        self.forget_threads()
        self._thread_written_ns = 0
        if self.foreign is not None:
            self.foreign.forget()
        self.captures.forget()
        self.precision.forget()
        self.frozen.forget()
        self.syncs.forget()
        self.stamps = DdpStamps()
        self.gpu: GpuTimes | None = None
        self.facts = process_facts.Facts(self.folder)
        self.work = Work(self.facts)
        self.saves = Saves()
        self.evaluations = Evaluations()
        self.loading = LoaderMarks(self)
        self.passes = PassMarks(self)
        self.schedule = StepSchedule(self)
        self.garbage.events.clear()
        self.deep: ProfilerWindow | None = None  # set if a deep window was requested

    def retire(self, ending: BaseException | None) -> None:
        """Ends the recording of a process that goes on. `ending`: the exception that ended what was recorded, if one did."""
        self.retired, self.ending = True, ending
        self.leave()
        self.forget()
        self.garbage.stop()

    def resume(self, folder: str) -> None:
        """Records again, as a new process, for the advisor of another ring folder."""
        self.folder, self.retired, self.ending = folder, False, None
        self.forget()
        if self.collectives is not None:
            self.collectives.forget()
        self.garbage.listen()

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
        reraise_signal_exception()
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
        account.on_step = self.schedule.stepped
        account.untrained.evaluates = lambda: shows_evaluation(self.precision.trained())
        account.to_marked = self.buffer.thinned.to_marked
        account.graph_nodes = getattr(getattr(self.torch, "autograd", None), "_get_sequence_nr", None)
        account.in_eval_mode, account.trained_in_eval_mode = self.evaluations.goes_on, self.evaluations.trains_so
        self.loading.in_process = InProcess(account, self.folder, self.failed)
        return account

    def thread_changed(self, account: Account) -> None:
        account.goes_on_in(get_ident(), RunDelay() if account.ring is not None else None)
        self.loading.digests.end()  # this thread's batches until now were not seen
        if self.loading.in_process is not None:
            self.loading.in_process.goes_on()
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
        self.trains_on(roots)
        self.facts.values.update({"rank": rank, "local_rank": local_rank, "world_size": world_size})
        self.facts.values["main_thread"] = self.native_id
        self.facts.values["run_delay"] = bool(delay)
        self.facts.values["indices_timed"] = True
        self.buffer.thinned.budget = budget_share(self.folder)
        self.deep = asked(self.torch, self.folder, self.facts, rank, local_rank, self.captures)
        if self.trial is not None:
            self.trial.joins()
        self.facts.active = True
        if self.collectives is not None:
            self.collectives.joins(world_size)
        if self.foreign is not None:
            self.foreign.refresh()
        self.facts.write()

    def _describe_affinity(self) -> None:
        try:
            self.facts.values.update(affinity_facts(self.affinity))
        except Exception as error:
            reraise_signal_exception()
            self.facts.miss("affinity: %s" % error)

    def trains_on(self, tensors: Any) -> None:
        """Uses the GPU of the trained tensors, which may not be the current device."""
        if self.facts.values.get("cuda") is not None or self.captures.under_way:
            return
        try:
            device = process_facts.cuda_index(tensors)
            if device is not None:
                self.facts.values["cuda"] = {**process_facts.cuda_facts(self.torch, device), **fast_paths(self.torch)}
                self.gpu = GpuTimes(self.torch.cuda, device, self.captures)
        except Exception as error:
            self.gpu_failed(error)

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
                self._end_rank(self.account)
            elif self.active and self.worker is None and ending_exception(self) is not None:
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
            self.facts.values["loaders"] = self.loading.loaders.facts(self.account)
        note_exception(self)
        self.facts.write()

    def _end_rank(self, account: Account) -> None:
        try:
            note_exception(self)
            sum_up(self)
            if self.trial is not None:
                self.facts.values["trial"] = self.trial.facts()
            self.facts.write()
        finally:
            account.leave()
        if rank_ring_folder.owner_is_gone(self.folder):
            rank_ring_folder.remove(*os.path.split(account.ring.path))  # no reader is left, and it occupies memory

    # -- marks -----------------------------------------------------------------------------------------------------------------

    def gpu_mark(self, ended: str, *, fetches: bool = False) -> None:
        try:
            self.gpu.mark(ended, fetches=fetches)  # type: ignore[union-attr]
        except Exception as error:
            self.gpu_failed(error)

    def gpu_failed(self, error: Exception) -> None:
        """Stops GPU events after an error (the job changes its device between marks, say). Steps are recorded without them."""
        reraise_signal_exception()
        self.gpu = None
        self.facts.miss("gpu times: %s" % error)

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
            self.schedule.refresh_facts()
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
