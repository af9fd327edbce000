"""Times every batch inside a DataLoader worker, and with the same clocks loading in the training process."""

from __future__ import annotations

import functools
import weakref
from _thread import get_ident
from multiprocessing import process
from operator import sub
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame
from ..layout import FLAG_FIRST_BATCH, KIND_BATCH, PHASE_CODE, ROLE_WORKER, WORKER_SLOTS
from ..ring import Ring
from ..thread_clocks import RunDelay, Sending, blocks_read, reads_and_system_ns, used_by_children
from .batch_size import count_samples
from .sample_profiles import FIRST_EVERY_IN_PROCESS_NS, BatchProfile, ProfileSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..garbage import Garbage
    from ..steps.step_account import Account

_NOTING_NS = 2_500  # of one start or end of a collection: calling the callback, and reading what it noted
_NOTING_SHARE_MAX = (
    0.005  # of the time to make batches; samples of many small objects are collected for every 700 of them
)
_PASSED_OVER_MAX = 63  # batches
_BUSY = PHASE_CODE["input_wait"]
_IDLE = PHASE_CODE["gap"]
_LOADER = "rn50_loader"


def set_loader_of_workers(loader: int) -> None:
    """Sets the loader of workers that are created from now on, in multiprocessing's configuration, which every start method passes on."""
    process.current_process()._config[_LOADER] = loader  # type: ignore[attr-defined]


def own_loader() -> int:
    """A worker's loader number; -1 if unknown."""
    return int(process.current_process()._config.get(_LOADER, -1))  # type: ignore[attr-defined]


def computed_ns(wall_ns: int, cpu_ns: int, delay_ns: int, programs_ns: int) -> int:
    """CPU time of a batch: that of its thread and of programs that it started and waited for.

    A program's CPU time is known when it has ended, and may be that of many batches: no more is counted than this batch has taken.
    """
    return cpu_ns + min(programs_ns, max(0, wall_ns - cpu_ns - delay_ns))


class WorkerLog:
    """One worker process: a ring with one record per batch."""

    def __init__(
        self, folder: str, pid: int, worker: int, loader: int, queue: Any = None, garbage: Garbage | None = None
    ) -> None:
        """`queue`: the queue for the worker's batches. `garbage`: notes this process's collections."""
        self.worker = worker
        self.loader = loader
        self.busy = False  # a batch is being loaded
        self.batches = 0
        self.self_ns = 0  # the recorder's own cost
        self.profiles = ProfileSchedule(folder)
        self._delay = RunDelay(keep_open=True)
        self._sending = Sending(queue)
        self._garbage = garbage
        self._listens_at = 0  # the batch from which on collections are noted
        self._ring = Ring("%s/worker-%d.ring" % (folder, pid), slots=WORKER_SLOTS, role=ROLE_WORKER, worker=worker)
        self._idle_since = perf_counter_ns()
        self._ring.phase(_IDLE, 0, self._idle_since)

    def begin(self) -> tuple[int, ...]:
        """Returns the clocks at the start of a batch."""
        now = perf_counter_ns()
        if self._garbage is not None and self.batches == self._listens_at:
            self._garbage.listen()
        self._ring.phase(_BUSY, self.batches, now)
        clocks = now, thread_time_ns(), self._delay(), *reads_and_system_ns(), *used_by_children()
        self.self_ns += perf_counter_ns() - now
        return clocks

    def end(self, began: tuple[int, ...], samples: int) -> None:
        now = perf_counter_ns()
        clocks = now, thread_time_ns(), self._delay(), *reads_and_system_ns(), *used_by_children()
        wall_ns, cpu_ns, delay_ns, blocks, system_ns, programs_ns, programs_blocks = map(sub, clocks, began)
        self._ring.write(
            KIND_BATCH,
            0 if self.batches else FLAG_FIRST_BATCH,
            (
                self.worker,
                self.loader,
                began[0],
                now,
                computed_ns(wall_ns, cpu_ns, delay_ns, programs_ns),
                delay_ns,
                blocks + programs_blocks,
                samples,
                -1,
                began[0] - self._idle_since,
                self.batches,
                system_ns,
                self._sending(),
                self._collected_ns(began[0], wall_ns),
            ),
        )
        self.batches += 1
        self._idle_since = perf_counter_ns()
        self.self_ns += self._idle_since - now
        self._ring.cost(self.self_ns, 0)
        self._ring.phase(_IDLE, self.batches, self._idle_since)

    def _collected_ns(self, since_ns: int, wall_ns: int) -> int:
        """The time of this thread's collections in a batch; -1 if not noted. Next batches are passed over where noting costs too much."""
        garbage = self._garbage
        if garbage is None or self.batches < self._listens_at:
            return -1
        noting_ns = len(garbage.events) * _NOTING_NS
        collected_ns = sum(ended - began for began, ended in garbage.take(get_ident()) if began >= since_ns)
        passed_over = min(_PASSED_OVER_MAX, int(noting_ns / (_NOTING_SHARE_MAX * max(wall_ns, 1))))
        self._listens_at = self.batches + 1 + passed_over
        if passed_over:
            garbage.stop()
        return collected_ns

    def next_profile(self, dataset: Any, index: Any, batched: bool = True) -> BatchProfile | None:
        """A profile for the next batch if one is due. None for a worker's first batch, which also imports modules and opens files."""
        now = perf_counter_ns()
        if not self.batches or not self.profiles.due(now):
            return None
        profile = self.profiles.start(now, dataset, index, batched)
        self.self_ns += perf_counter_ns() - now
        return profile

    def write_profile(self, profile: BatchProfile, began: tuple[int, ...], samples: int, batch: Any) -> None:
        now = perf_counter_ns()
        profile.finish(self._ring, began[0], samples, batch, worker=self.worker, loader=self.loader)
        own_ns = profile.self_ns + perf_counter_ns() - now
        self.profiles.add_cost(own_ns)
        self.self_ns += own_ns

    def leave(self) -> None:
        self._ring.end()


class InProcess:
    """Times loading in the training process (num_workers=0) in clocked steps, with the same clocks. The step gets the sums."""

    def __init__(self, account: Account, folder: str, failed: Callable[[], None]) -> None:
        self.profiles = ProfileSchedule(folder, FIRST_EVERY_IN_PROCESS_NS)
        self.busy = False
        self._account = account
        self._failed = failed
        self._delay = RunDelay()
        self._watched: Any = None

    def goes_on(self) -> None:
        """Called when the calling thread takes over loading after the previous thread has ended."""
        self._delay = RunDelay()

    def watch(self, fetcher: Any) -> None:
        """Times this fetcher's next batch by an instance attribute. A wrapper on its class would cost time in each step."""
        # a dataset may iterate over its own loader; a method on the object itself is the job's
        if self._watched is None and "fetch" not in vars(fetcher):
            self._watched = weakref.ref(fetcher)
            fetcher.fetch = timed_fetch(type(fetcher).fetch, self, self._failed, self._watched)

    def release(self) -> None:
        if self._watched is not None:
            watched, self._watched = self._watched(), None
            if watched is not None:
                del watched.fetch

    def begin(self) -> tuple[int, ...]:
        return perf_counter_ns(), thread_time_ns(), self._delay(), blocks_read(), *used_by_children()

    def end(self, began: tuple[int, ...], samples: int) -> None:
        wall_ns, cpu_ns, delay_ns, blocks, programs_ns, programs_blocks = map(sub, self.begin(), began)
        fetching = self._account.fetching
        fetching.wall_ns += wall_ns
        fetching.cpu_ns += computed_ns(wall_ns, cpu_ns, delay_ns, programs_ns)
        fetching.delay_ns += delay_ns
        fetching.blocks += blocks + programs_blocks
        fetching.batches += 1

    def next_profile(self, dataset: Any, index: Any, batched: bool = True) -> BatchProfile | None:
        """A profile for the next batch if one is due and the process is a rank."""
        now = perf_counter_ns()
        if self._account.ring is None or not self.profiles.due(now):
            return None
        return self.profiles.start(now, dataset, index, batched)

    def write_profile(self, profile: BatchProfile, began: tuple[int, ...], samples: int, batch: Any) -> None:
        now = perf_counter_ns()
        account = self._account
        loader = account.unconsumed[0] if account.unconsumed is not None else -1
        profile.finish(account.ring, began[0], samples, batch, worker=-1, loader=loader)
        # profiling is no part of loading
        account.fetching.wall_ns -= profile.self_ns
        account.fetching.cpu_ns -= profile.self_ns
        own_ns = profile.self_ns + perf_counter_ns() - now
        self.profiles.add_cost(own_ns)
        account.self_ns += own_ns


def timed_fetch(
    original: Callable[..., Any],
    clock: WorkerLog | InProcess,
    failed: Callable[[], None],
    watched: Callable[[], Any] | None = None,
) -> Any:
    """Wraps a fetcher's `fetch`: `clock` times it, and profiles a sample when one is due. Errors in our code call `failed`.

    `watched`: a weak reference to the fetcher if the wrapper becomes its instance attribute, not its class's method.
    """

    def quietly(call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except RecursionError:
            return None
        except Exception:
            failed()
            return None

    @functools.wraps(original)
    def fetch(*args: Any) -> Any:
        fetcher, index = args if watched is None else (watched(), *args)
        # in a worker, a dataset may iterate over its own loader: that is part of the outer batch
        nested, clock.busy = clock.busy, True
        profile = None
        try:
            if not nested:
                profile = quietly(clock.next_profile, fetcher.dataset, index, getattr(fetcher, "auto_collation", False))
            began = None if nested else quietly(clock.begin)
            if profile is None:
                batch = original(fetcher, index)
            else:
                quietly(profile.begin)
                batch = original(fetcher, profile.index)
        except BaseException as error:
            if profile is not None:
                quietly(profile.abandon)
            hide_frame(error)
            raise
        finally:
            clock.busy = nested
        if began is not None:
            # a single index if the dataset makes whole batches
            size = len(index) if isinstance(index, (list, tuple)) else quietly(count_samples, batch, None) or 1
            quietly(clock.end, began, size)
            if profile is not None:
                quietly(clock.write_profile, profile, began, size, batch)
        elif profile is not None:
            quietly(profile.abandon)
        return batch

    fetch.__annotations__ = {}
    return fetch


DRAWING_MIN_NS = 100_000  # torch's own samplers take 10 us for 256 indices, and longer once per epoch


# Time to draw the indices of a batch. The training thread draws them at each fetch, also if workers load the batch.
class Drawing:
    """Times the drawing in clocked steps, by an instance attribute of the iterator; other steps run none of it."""

    __slots__ = ("_began_ns", "_count", "_took_ns", "_watched")

    def __init__(self) -> None:
        self._watched: Any = None

    def watch(self, iterator: Any) -> None:
        """Times the drawing of indices in this iterator's next fetch. Leaves a method on the object itself alone, which is the job's."""
        draw = getattr(type(iterator), "_next_index", None)
        if draw is None or self._watched is not None or "_next_index" in vars(iterator):
            return
        watched = weakref.ref(iterator)
        self._began_ns = self._took_ns = self._count = 0

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return draw(watched(), *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                self._began_ns = self._began_ns or began
                self._took_ns += perf_counter_ns() - began
                self._count += 1

        self._watched = watched
        iterator._next_index = timed

    def release(self, account: Account, loader: int) -> None:
        """Called after the fetch. Records the drawing time if it was long."""
        if self._watched is None:
            return
        watched, self._watched = self._watched(), None
        if watched is not None:
            del watched._next_index
        if self._took_ns >= DRAWING_MIN_NS:
            ended = self._began_ns + self._took_ns
            account.span("index", self._began_ns, ended, 0, self._count, loader)
