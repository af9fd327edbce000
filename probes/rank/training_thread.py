"""Which thread of a process trains: the one with the first backward pass, and after its end the next one that has one.

Only this thread has an account. Nothing here waits: where two threads begin together, one takes the role and the other gets nothing.
"""

from __future__ import annotations

import threading
import weakref
from _thread import allocate_lock, get_ident, get_native_id
from typing import TYPE_CHECKING, Any

from .steps.step_phases import BACKWARD as IN_BACKWARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from .facts.process_facts import Facts
    from .steps.mark_buffer import MarkBuffer
    from .steps.step_account import Account
    from .workers.worker_batches import WorkerLog

_THREADS_MAX = 64  # classified threads besides the training thread


class _Token:
    """Kept in the training thread's local storage, so it is deleted when the thread ends."""

    __slots__ = ("__weakref__",)


class TrainingThread:
    """The part of the recorder that knows the threads. What an account and a rank need besides, the recorder adds."""

    buffer: MarkBuffer
    worker: WorkerLog | None
    facts: Facts

    def make_account(self) -> Account:
        """A new account of the calling thread."""
        raise NotImplementedError

    def become_rank(self, account: Account, roots: Any) -> None:
        """Creates the account's ring, at its first backward pass."""
        raise NotImplementedError

    def thread_changed(self, account: Account) -> None:
        """Called in the thread that takes over training."""
        raise NotImplementedError

    def forget_threads(self) -> None:
        """Resets in a new or forked process."""
        self.account: Any = None  # an Account, created at the first mark of a training thread
        # taken by the thread that becomes the training thread; never waited for
        self._becoming = allocate_lock()
        self._own = threading.local()
        self._trains: Callable[[], Any] = object  # returns None once the training thread has ended
        self.native_id = 0  # of the training thread
        self._others: set[int] = set()  # other threads that train
        self.several_threads_train = False  # several threads train: buffered marks do not record the thread
        self.fetching_threads: dict[int, int] = {}  # threads that fetch but do not train -> their loader

    def own_account(self) -> Account | None:
        """The account if the calling thread is the training thread, else None."""
        account: Account | None = self.account
        if account is None:
            account = self._claim()
        if account is None or account.thread != get_ident():
            return None
        if self._trains() is None:  # the id of an ended thread, reused by this one
            self._follow(account)
        if self.buffer.on:
            self.buffer.flush_into(account)
        return account

    def training_account(self, roots: Any) -> Account | None:
        """Like `own_account`, for a backward pass of these tensors: the thread of the first one becomes the training thread."""
        account = self.own_account()
        if account is not None and account.ring is not None:
            return account
        # several threads may start their first one together: the first becomes the rank and creates its ring once
        if self.worker is not None or not self._becoming.acquire(False):
            return None
        try:
            account = self.account
            if account is None:
                account = self._new_account()
            elif account.thread != get_ident():
                if account.ring is None:
                    if account.loaders or account.fetched:
                        self.facts.values["fetches_in_another_thread"] = True
                        self.fetches(next(iter(account.fetched), -1), account.thread)
                    account = self._new_account()
                elif self._trains() is None:
                    self._follow(account)
                else:
                    return None
            if account.ring is None:
                self.fetching_threads.pop(get_ident(), None)
                self.become_rank(account, roots)
            return account
        finally:
            self._becoming.release()

    def _claim(self) -> Account | None:
        """Returns the account; the first of several threads creates and owns it. The others get None."""
        if self.worker is not None or not self._becoming.acquire(False):
            return None
        try:
            return self.account or self._new_account()
        finally:
            self._becoming.release()

    def _new_account(self) -> Account:
        account = self.make_account()
        self._is_this_thread()
        self.account = account
        return account

    def _is_this_thread(self) -> None:
        token = self._own.token = _Token()
        self._trains = weakref.ref(token)
        self.native_id = get_native_id()

    def _follow(self, account: Account) -> None:
        """The calling thread takes over training after the previous training thread has ended."""
        if self.buffer.on:
            self.buffer.flush_into(account)
        before = self.native_id
        self._is_this_thread()
        if before == self.native_id:
            return  # the same C++ thread, which Python knows only during a call
        self.fetching_threads.pop(get_ident(), None)
        self.thread_changed(account)

    def fetches(self, loader: int, thread: int | None = None) -> None:
        """Records that the calling thread, or the given one, fetches from this loader and does not train."""
        threads = self.fetching_threads
        threads[get_ident() if thread is None else thread] = loader
        if len(threads) > _THREADS_MAX:  # the oldest one has most likely ended
            threads.pop(next(iter(threads)), None)

    def runs_in_a_hook(self) -> bool:
        """True if this other thread runs part of the backward pass that the training thread waits for."""
        account, buffer = self.account, self.buffer
        if account is None or get_ident() in self._others:
            return False
        if buffer.counting:
            return bool(buffer.phase == IN_BACKWARD)
        return bool(buffer.inside_backward if buffer.on else account.inside_backward)

    def trains_too(self) -> None:
        """Records that the calling thread trains, too. From now on marks are not buffered, since the buffer records no threads."""
        if len(self._others) < _THREADS_MAX:
            self._others.add(get_ident())
        self.several_threads_train = True
        self.buffer.mark_full()


def is_native() -> bool:
    """True if the calling thread was not started by Python's `threading`, such as autograd's. Takes no lock."""
    known = threading._active.get(get_ident())  # type: ignore[attr-defined]
    return known is None or isinstance(known, threading._DummyThread)
