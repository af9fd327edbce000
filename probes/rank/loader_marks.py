"""Marks of the loaders: fetches of the training thread, starts of epochs, and ends of workers."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .facts.batch_digests import BatchDigests, EvaluatedDigests
from .facts.batch_facts import BatchSamples
from .facts.known_loaders import KnownLoaders
from .patches.pinning import Pinning
from .steps.step_account import PLAIN_STEP_MARKS
from .steps.step_phases import FORWARD, GAP, INPUT
from .workers.batch_size import count_samples
from .workers.picture_numbers import CHECKED_STEPS, describe_pictures
from .workers.worker_batches import Drawing, InProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from .recorder import Recorder
    from .steps.step_account import Account

_FETCH_MARKS_MAX = 32  # four per batch: in a step of sixteen or more, only every second, third … fetch is recorded


class LoaderMarks:
    """Marks of fetches that are not buffered, and what is recorded with the batches."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.in_process: InProcess | None = None  # once there is an account
        self.drawing = Drawing()
        self.pinning = Pinning()
        self.batch_index = -1  # index in the epoch of the batch being fetched, if it is to be recorded
        self.batch_samples = BatchSamples(recorder.facts)
        self.loaders = KnownLoaders()
        self.digests = BatchDigests(recorder.facts, self.loaders.described)
        self.evaluated = EvaluatedDigests(recorder.facts)
        self.iterators: dict[int, int] = {}  # loader -> id of the iterator last used by the training thread
        # steps from which on a batch's images are inspected, until their kind is known
        self.picture_steps = list(CHECKED_STEPS)
        self.evaluating = not_in_training(recorder.torch)

    def iterator_made(self, iterator: Any, loader: Any, began: int) -> None:
        iterator._rn50_loader = self.loaders.numbers.get(loader)
        self.epoch_begun(iterator, began)

    def epoch_begun(self, iterator: Any, began: int) -> None:
        recorder = self._recorder
        # the next fetch is the first of an epoch and must be processed, not only buffered, even with the same iterator, another
        # one at the same address, or another thread
        self.iterators.pop(iterator._rn50_loader, None)
        if id(iterator) == recorder.buffer.iterator:
            recorder.buffer.iterator = 0
        account = recorder.own_account()
        if account is not None:
            account.loader_started(iterator._rn50_loader, self.evaluating(), began)

    def fetch_begin(self, iterator: Any) -> tuple[Account, bool, int] | None:
        """Returns the account and whether the fetch may train, or None if this thread is not recorded."""
        recorder = self._recorder
        began = perf_counter_ns()
        account = recorder.own_account()
        loader = getattr(iterator, "_rn50_loader", -1)
        if account is None:
            if recorder.worker is None:
                recorder.fetches(loader)
            return None
        if recorder.foreign is not None and recorder.foreign.inside:
            self._watch_loading(account, iterator)
            return None
        if account.phase == INPUT:  # a dataset that iterates over its own loader: part of the running fetch
            return None
        if loader >= 0:
            self.iterators[loader] = id(iterator)
        token = self.begin_fetch(account, loader, iterator._num_yielded == 0, began)
        if token[1]:
            self.watch_fetch(account, iterator)
        return token

    def watch_fetch(self, account: Account, iterator: Any) -> None:
        """Times, in a clocked step, drawing the indices and, without workers, loading and pinning the batch."""
        if not account.clocked or self._watch_loading(account, iterator):
            return
        if account.fewest_marks > PLAIN_STEP_MARKS:  # the step's sums do not separate its fetches
            index = iterator._num_yielded
            self.batch_index = -1 if index % max(1, account.fewest_marks // _FETCH_MARKS_MAX) else index

    def _watch_loading(self, account: Account, iterator: Any) -> bool:
        """Returns True if this process makes the iterator's batches and the step is clocked."""
        if not account.clocked:
            return False
        self.drawing.watch(iterator)
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is None or self.in_process is None:
            return False
        self.in_process.watch(fetcher)
        if getattr(iterator, "_pin_memory", False):
            self.pinning.watch(getattr(iterator, "_rn50_loader", -1))
        return True

    def begin_fetch(self, account: Account, loader: int, first: bool, began: int) -> tuple[Account, bool, int]:
        """Called when the next batch is requested from a source; `first`: the first of an epoch."""
        recorder = self._recorder
        if account.step == 0:
            recorder.precision.begin()
        computing = account.phase == FORWARD
        training = account.fetch_begin(loader, self.evaluating(), first)
        if training and recorder.gpu is not None:
            # several batches before a backward pass: stages of a pipeline, losses over batches
            recorder.gpu_mark("forward" if computing and account.trains(loader) else "gap", fetches=True)
        account.self_ns += perf_counter_ns() - began
        return account, training, loader

    def fetch_end(self, token: tuple[Account, bool, int], batch: Any) -> None:
        recorder = self._recorder
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
        if not training and self.evaluated.open and loader >= 0:
            self.evaluated.batch(loader, batch)
        if training and account.clocked:
            if self.batch_index >= 0:
                account.span("fetch", asked, account.since, 0, self.batch_index, loader)
                self.batch_index = -1
            self.pinning.write_growth(account)
            if recorder.work.sampled(account.step, began):
                recorder.work.batch(batch)
            self.batch_samples.batch(batch)
        if training and self.picture_steps and account.step >= self.picture_steps[0]:
            self._describe_pictures(batch)
        if training and recorder.gpu is not None:
            recorder.gpu_mark("input_wait")
        account.self_ns += perf_counter_ns() - began

    def _describe_pictures(self, batch: Any) -> None:
        recorder = self._recorder
        self.picture_steps.pop(0)
        found = describe_pictures(batch)
        if found is None or found["from_bytes"] is not None or found["device"] != "cpu" or found["dtype"] == "uint8":
            self.picture_steps.clear()  # no images, or nothing more to learn about them
        if found is not None:
            recorder.facts.update({"pictures": found})

    def fetch_failed(self, token: tuple[Account, bool, int]) -> None:
        """Called when the loader is exhausted or raised."""
        recorder = self._recorder
        account, training, loader = token
        if self.in_process is not None:
            self.in_process.release()
        self.pinning.release()
        self.batch_index = -1
        self.drawing.release(account, loader)
        if recorder.buffer.on:
            recorder.buffer.flush_into(account)
        account.fetch_stop(training, loader)

    def workers_end(self, iterator: Any) -> int | None:
        """Called when an epoch's workers are stopped: in the last fetch, or when the loop drops the iterator."""
        recorder = self._recorder
        known = recorder.account
        if known is None or known.replaying or recorder.garbage.under_way or getattr(iterator, "_shutdown", True):
            return None
        account = recorder.own_account()
        if account is None or account.ring is None or account.phase not in (FORWARD, GAP):
            return None
        return account.workers_end(iterator._rn50_loader)

    def workers_ended(self, phase: int) -> None:
        recorder = self._recorder
        account = recorder.own_account()
        if account is not None:
            account.enter(phase)


def not_in_training(torch: Any) -> Callable[[], bool]:
    """A function that returns True under `no_grad` or `inference_mode`."""
    enabled = torch.is_grad_enabled
    return lambda: not enabled()
