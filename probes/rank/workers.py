"""Inside a DataLoader worker: every batch is timed where it is made. The same clock serves loading in the training process."""

from __future__ import annotations

import functools
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from .cost import RunDelay, blocks_read, system_time_ns
from .layout import FLAG_FIRST_BATCH, KIND_BATCH, PHASE_CODE, ROLE_WORKER, WORKER_SLOTS
from .ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from .phases import Account

_BUSY = PHASE_CODE["input_wait"]
_IDLE = PHASE_CODE["gap"]


class WorkerLog:
    """One worker process: a ring with one record a batch."""

    def __init__(self, folder: str, pid: int, worker: int, loader: int) -> None:
        self.worker = worker
        self.loader = loader
        self.batches = 0
        self._delay = RunDelay()
        self._ring = Ring("%s/worker-%d.ring" % (folder, pid), slots=WORKER_SLOTS, role=ROLE_WORKER, worker=worker)
        self._idle_since = perf_counter_ns()
        self._ring.phase(_IDLE, 0, self._idle_since)

    def begin(self) -> tuple[int, int, int, int, int]:
        """Returns the clocks at the begin of a batch."""
        now = perf_counter_ns()
        self._ring.phase(_BUSY, self.batches, now)
        return now, thread_time_ns(), self._delay(), blocks_read(), system_time_ns()

    def end(self, began: tuple[int, int, int, int, int], samples: int) -> None:
        began_ns, cpu_ns, delay_ns, blocks, system_ns = began
        now = perf_counter_ns()
        self._ring.write(
            KIND_BATCH,
            0 if self.batches else FLAG_FIRST_BATCH,
            (
                self.worker,
                self.loader,
                began_ns,
                now,
                thread_time_ns() - cpu_ns,
                self._delay() - delay_ns,
                blocks_read() - blocks,
                samples,
                -1,
                began_ns - self._idle_since,
                self.batches,
                system_time_ns() - system_ns,
            ),
        )
        self.batches += 1
        self._idle_since = perf_counter_ns()
        self._ring.phase(_IDLE, self.batches, self._idle_since)

    def leave(self) -> None:
        self._ring.end()


class InProcess:
    """Loading in the training process (num_workers=0), in clocked steps: the same clocks, added up into the step."""

    def __init__(self, account: Account, failed: Callable[[], None]) -> None:
        self._account = account
        self._failed = failed
        self._delay = RunDelay()
        self._watched: Any = None

    def watch(self, fetcher: Any) -> None:
        """Time this fetcher's next batch, by an attribute of its own: a wrapper on its class would cost each step of the job."""
        if self._watched is None:  # a dataset may iterate over a loader of its own
            self._watched = fetcher
            fetcher.fetch = timed_fetch(fetcher.fetch, self, self._failed)

    def release(self) -> None:
        if self._watched is not None:
            watched, self._watched = self._watched, None
            del watched.fetch

    def begin(self) -> tuple[int, ...]:
        return perf_counter_ns(), thread_time_ns(), self._delay(), blocks_read()

    def end(self, began: tuple[int, ...], samples: int) -> None:
        wall_ns, cpu_ns, delay_ns, blocks = began
        fetching = self._account.fetching
        fetching.wall_ns += perf_counter_ns() - wall_ns
        fetching.cpu_ns += thread_time_ns() - cpu_ns
        fetching.delay_ns += self._delay() - delay_ns
        fetching.blocks += blocks_read() - blocks
        fetching.batches += 1


def timed_fetch(fetch: Callable[..., Any], clock: WorkerLog | InProcess, failed: Callable[[], None]) -> Any:
    """A fetcher's `fetch`, a method of its class or of itself, timed by `clock`; `failed` is told what goes wrong in there."""

    @functools.wraps(fetch)
    def timed(*args: Any) -> Any:
        began: Any = None
        try:
            began = clock.begin()
        except Exception:
            failed()
        batch = fetch(*args)
        if began is not None:
            try:
                index = args[-1]
                clock.end(began, len(index) if isinstance(index, (list, tuple)) else 1)
            except Exception:
                failed()
        return batch

    timed.__annotations__ = {}
    return timed
