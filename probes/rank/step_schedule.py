"""What the recorder does at the start of a step: work that is due, and whether the step's marks are buffered."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .facts import process_facts
from .steps.mark_buffer import BUFFERED_NS, SHORT_STRETCHES_MAX
from .steps.plain_steps import may_be_counted
from .steps.step_account import PLAIN_STEP_MARKS
from .summed_facts import sum_up

if TYPE_CHECKING:
    from .recorder import Recorder
    from .steps.step_account import Account


class StepSchedule:
    """`due_at`: the next step with scheduled work; `refresh_at`: the next one in which the facts are written."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.refresh_at = self.due_at = 1
        self.asks_for_aids = False  # at the next backward

    def stepped(self, step: int) -> None:
        """Called at the start of this step, when the one before was written."""
        recorder = self._recorder
        if recorder.gpu is not None:
            try:
                recorder.gpu.close(step - 1, recorder.account.ring)
            except Exception as error:
                recorder.gpu_failed(error)
        if step >= self.due_at:
            self._due()
        self.buffer_or_mark(recorder.account)

    def flush_buffer(self, iterator: Any) -> None:
        """Called when the buffer is full and its last mark is this iterator's fetch."""
        recorder = self._recorder
        account = recorder.account
        recorder.buffer.flush_into(account)
        if account.begin_step():
            began = perf_counter_ns()
            if recorder.stamps.any:
                recorder.passes.read_stamps(account, account.step - 2, account.last_step_ns)
            if account.step >= self.due_at:
                self._due()
            recorder.loading.watch_fetch(account, iterator)
            account.self_ns += perf_counter_ns() - began
            self.buffer_or_mark(account)

    def buffer_or_mark(self, account: Account) -> None:
        """Decides at a step's start whether its marks are buffered, and for how many steps."""
        recorder = self._recorder
        if account.replaying:
            return
        passes = recorder.passes
        watched = passes.discarded.turn(account.step) | passes.unused.turn(account.step)
        watched |= passes.repeated.turn(account.step)
        watched |= recorder.gpu is None and passes.nodes.turn(account.step)
        timed = recorder.gpu is not None and recorder.gpu.turn(account.step, account.t_start, account.self_ns)
        if timed and recorder.collectives is not None and recorder.collectives.on_gpu:
            recorder.gpu.choose_waits(account.step)  # type: ignore[union-attr]
        if timed or watched or account.clocked or recorder.several_threads_train or not recorder.active:
            return
        if recorder.syncs.open or self.asks_for_aids:  # they concern one step, not several
            return
        digests = recorder.loading.digests
        if digests.open and digests.counts(account.step):  # no batch is seen while marks are buffered
            return
        # the loop has neither of the marks that check for a full buffer
        if account.optimizers == 0 and account.last_loader < 0:
            return
        if recorder.deep is not None and recorder.deep.on:  # its steps must start and end on time
            return
        # in a step of several backward passes each may be stamped, so its marks are processed one by one
        stamped = recorder.stamps.steps_to_read(account.step) - (account.fewest_marks != PLAIN_STEP_MARKS)
        steps = min(account.steps_to_clock(), max(1, BUFFERED_NS // max(account.last_step_ns, 1)), stamped)
        if recorder.deep is not None:
            # it starts at the start of a step, not of several buffered ones
            steps = min(steps, recorder.deep.next_step - account.step)
        if recorder.trial is not None:  # its variants, too
            steps = min(steps, recorder.trial.next_step - account.step)
        if recorder.gpu is not None:
            steps = min(steps, recorder.gpu.next_step - account.step)  # steps with events, too
        if steps > 0 and account.fewest_marks > 0:
            loader = account.last_loader
            iterator, thinned = recorder.loading.iterators.get(loader, 0), recorder.buffer.thinned
            steps = min(steps, thinned.steps_alike(account.step))
            counted = thinned.to_marked(account.step) > 0 and self._may_be_counted(account, iterator)
            batch_size = recorder.loading.loaders.batch_size(loader)
            recorder.buffer.start(account, steps, batch_size, iterator, counted=counted)

    def _may_be_counted(self, account: Account, iterator: int) -> bool:
        buffer = self._recorder.buffer
        if not buffer.usual.offsets or buffer.short_stretches >= SHORT_STRETCHES_MAX:
            return False
        return bool(iterator or account.last_loader < 0) and may_be_counted(account)

    def _due(self) -> None:
        """Called at the start of a step with scheduled work."""
        recorder = self._recorder
        step = recorder.account.step
        if step >= recorder.precision.until:
            recorder.precision.disarm()
        if step >= self.refresh_at:
            self.refresh_facts()
            recorder.passes.discarded.asked(step, needed=self._mixes_passes())
        self.due_at = min(self.refresh_at, recorder.precision.until)
        if recorder.deep is not None:
            if step >= recorder.deep.next_step:
                recorder.deep.at_step(recorder.account)
            self.due_at = min(self.due_at, recorder.deep.next_step)
        if recorder.trial is not None:
            if step >= recorder.trial.next_step:
                recorder.trial.at_step(recorder.account)
            self.due_at = min(self.due_at, recorder.trial.next_step)
        profiled = recorder.deep is not None and recorder.deep.on
        if step >= recorder.syncs.due and not recorder.account.replaying and (recorder.syncs.open or not profiled):
            recorder.syncs.turn(step, recorder.account, recorder.facts.values)
        self.due_at = min(self.due_at, recorder.syncs.due)

    def _mixes_passes(self) -> bool:
        """True with several optimizers or backward passes: a single pass for a single optimizer throws nothing away."""
        account = self._recorder.account
        plain = PLAIN_STEP_MARKS if account.last_loader >= 0 else PLAIN_STEP_MARKS - 2
        return account.fewest_marks > plain or self._recorder.passes.discarded.optimizers > 1

    def refresh_facts(self) -> None:
        """Writes the facts so far, at growing intervals."""
        recorder = self._recorder
        step = recorder.account.step
        if recorder.foreign is not None:
            recorder.foreign.refresh()
        self.refresh_at = step + 1 if step < 4 else 50 if 25 <= step < 50 else 2 * step
        values = recorder.facts.values
        sum_up(recorder)
        if recorder.trial is not None:
            values["trial"] = recorder.trial.facts()
        values["visible_optimizer"] = recorder.account.optimizers > 0
        recorder.precision.refresh(step)
        self.asks_for_aids = step >= process_facts.AIDS_FROM_STEP
        self.due_at = min(self.due_at, recorder.precision.until)
        recorder.facts.write()
