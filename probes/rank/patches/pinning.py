"""Times copies of batches into pinned memory, in the loader's pinning thread or within a fetch without workers.

Wrappers replace the thread's queues and record when it takes a batch and passes it on. In a fetch a one-shot wrapper times one call.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame
from ..workers.sample_standins import put
from ..workers.worker_batches import own_loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder
    from ..steps.step_account import Account

_MODULE = "torch.utils.data._utils.pin_memory"


class Pinning:
    """Pinning times. Threads add times, each for its own loader; in clocked steps the training thread writes the growth."""

    def __init__(self) -> None:
        self._spent: dict[int, tuple[int, int]] = {}  # loader -> batches and ns so far
        self._written: dict[int, tuple[int, int]] = {}
        self._undo: Callable[[], None] | None = None

    def add(self, loader: int, took_ns: int) -> None:
        batches, ns = self._spent.get(loader, (0, 0))
        self._spent[loader] = batches + 1, ns + took_ns

    def write_growth(self, account: Account) -> None:
        """Writes the growth since the last call. Called in the training thread."""
        if account.ring is None or self._spent == self._written:
            return
        now = perf_counter_ns()
        for loader, (batches, ns) in self._spent.copy().items():
            known, known_ns = self._written.get(loader, (0, 0))
            if batches > known:
                self._written[loader] = batches, ns
                account.span("pin", now - (ns - known_ns), now, 0, batches - known, loader)

    def watch(self, loader: int) -> None:
        """Times the next batch pinned in this thread, in a fetch of a loader without workers."""
        module: Any = sys.modules.get(_MODULE)
        original = getattr(module, "pin_memory", None)
        if original is None or self._undo is not None:
            return

        thread = get_ident()

        @functools.wraps(original)
        def pin_memory(*args: Any, **kwargs: Any) -> Any:
            ours = get_ident() == thread  # else another loader's thread
            if ours:
                self.release()  # it recurses for each part of a batch
            began = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                if ours:
                    self.add(loader, perf_counter_ns() - began)

        pin_memory.__annotations__ = {}
        self._undo = put(module, "pin_memory", pin_memory)

    def release(self) -> None:
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()


def timed_loop(original: Any, recorder: Recorder) -> Any:
    """Wraps the loop of a loader's pinning thread to time each batch from taking it to passing it on."""

    @functools.wraps(original)
    def _pin_memory_loop(*args: Any, **kwargs: Any) -> Any:
        try:
            if recorder.active and len(args) > 1:
                taking = _Taking(args[0])
                args = taking, _Giving(args[1], taking, recorder.loading.pinning, recorder.failed), *args[2:]
        except Exception:
            recorder.failed()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    _pin_memory_loop.__annotations__ = {}
    return _pin_memory_loop


class _Taking:
    """The pinning thread's input queue."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.taken_ns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        try:
            item = self._queue.get(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        self.taken_ns = perf_counter_ns()
        return item


class _Giving:
    """The pinning thread's output queue. A retry after a full queue does not count the batch again."""

    def __init__(self, queue: Any, taking: _Taking, pinning: Pinning, failed: Callable[[], None]) -> None:
        self._queue = queue
        self._taking = taking
        self._pinning = pinning
        self._failed = failed
        self._loader = own_loader()  # the loader whose iterator started this thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, item: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            taken_ns, self._taking.taken_ns = self._taking.taken_ns, 0
            if taken_ns and type(item[0]) is int:  # else it is a worker's acknowledgement of an epoch's start
                self._pinning.add(self._loader, perf_counter_ns() - taken_ns)
        except Exception:
            self._failed()
        try:
            return self._queue.put(item, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
