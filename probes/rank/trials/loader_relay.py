"""Torch's iterators that take over from each other within an epoch of a DataLoader, between two batches and in the sampler's order.

The job keeps its iterator. Only `_next_data` is replaced, on the object: `__next__` stays, with what torch and the recorder count in it.
The next iterator gets the rest of the sampler's indices; batches that are out come first. Workers without indices wait for another turn.

With `num_workers=0` the dataset's own random calls run in this process and move its generators, as they would in the edited job. All else
leaves the generators of the process alone. Samplers that draw sample by sample draw earlier with workers than without.
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ..hidden_frames import hide_frame
from ..workers.worker_batches import set_loader_of_workers
from .swap_refusals import pins

if TYPE_CHECKING:
    from .loader_swap import LoaderSwap

_FOLDER = __file__.rpartition("trials")[0]  # the recorder's
# What torch's iterators (2.5 to 2.14) read of their loader.
_READ = (
    "dataset", "_dataset_kind", "_IterableDataset_len_called", "_auto_collation", "drop_last", "_index_sampler", "num_workers",
    "pin_memory", "pin_memory_device", "timeout", "collate_fn", "generator", "persistent_workers", "prefetch_factor", "in_order",
    "worker_init_fn", "multiprocessing_context",
)  # fmt: skip
_PREFETCH = 2  # torch's default


class LoaderOptions(NamedTuple):
    """The options of a loader that can be exchanged. Without workers the other two of workers are None."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    context: Any

    def changed(self, options: dict[str, Any]) -> LoaderOptions:
        """These options with the new arguments of a DataLoader."""
        pinned = bool(options.get("pin_memory", self.pin_memory))
        workers = options.get("num_workers", self.num_workers) or 0
        if workers == 0:
            return LoaderOptions(0, None, pinned, None)
        context = options.get("multiprocessing_context", self.context)
        if isinstance(context, str):
            context = sys.modules["torch"].multiprocessing.get_context(context)
        return LoaderOptions(
            workers, options.get("prefetch_factor", self.prefetch_factor) or _PREFETCH, pinned, context
        )

    def facts(self) -> dict[str, Any]:
        method = getattr(self.context, "get_start_method", None)
        return {**self._asdict(), "context": None if method is None else method()}


class LoaderParts:
    """What iterators read of a loader, in its place: the loader may die before its iterator does, or hold it."""

    def __init__(self, loader: Any) -> None:
        for name in _READ:
            if hasattr(loader, name):  # `in_order` came with torch 2.6
                setattr(self, name, getattr(loader, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("torch's iterators read %s of a loader, which is unknown here" % name)

    def options(self) -> LoaderOptions:
        """As the job made the loader."""
        pinned = bool(self.pin_memory) and pins()
        made = LoaderOptions(int(self.num_workers), self.prefetch_factor, pinned, self.multiprocessing_context)
        return made.changed({})

    def with_options(self, options: LoaderOptions) -> LoaderParts:
        """For an iterator that gets its indices later, and draws its seed from a copy of the job's generator."""
        workers, prefetch, pinned, context = options
        parts = LoaderParts(self)
        vars(parts).update(
            num_workers=workers, prefetch_factor=prefetch, pin_memory=pinned, multiprocessing_context=context
        )
        vars(parts).update(_index_sampler=(), generator=_copied(self.generator))
        if not workers:
            vars(parts)["timeout"] = 0  # torch allows none without workers
        if not pinned:
            vars(parts)["pin_memory_device"] = ""
        return parts

    def draw(self) -> Any:
        """Draws what the job's own iterator would have drawn at its creation, in that order. Returns the sampler's iterator."""
        torch: Any = sys.modules["torch"]
        indices = iter(self._index_sampler)
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)  # the seed of its workers
        return iter(self._index_sampler) if self.num_workers else indices  # with workers torch asks the sampler twice


def _copied(generator: Any) -> Any:
    """A generator that draws what the job's would draw next."""
    torch: Any = sys.modules["torch"]
    source = torch.default_generator if generator is None else generator
    device = torch.empty(()).device  # where the seed is drawn: another one after `set_default_device`
    copy = torch.Generator(device=device)
    if source.device == device:
        copy.set_state(source.get_state())
    else:
        copy.manual_seed(torch.initial_seed())
    return copy


def made(parts: LoaderParts, number: int, *, begins: bool) -> Any:
    """An iterator without indices. `number`: of its loader. `begins`: the recorder is to note the start of an epoch."""
    module: Any = sys.modules["torch.utils.data.dataloader"]
    kind = module._MultiProcessingDataLoaderIter if parts.num_workers else module._SingleProcessDataLoaderIter
    set_loader_of_workers(number)
    iterator = kind.__new__(kind)
    try:
        (kind.__init__ if begins else _torchs_own(kind.__init__))(iterator, parts)
    except BaseException:
        close(iterator)
        raise
    iterator._rn50_loader = number
    return iterator


def _torchs_own(function: Any) -> Any:
    """The function inside the recorder's wrappers."""
    while getattr(getattr(function, "__code__", None), "co_filename", "").startswith(_FOLDER):
        function = function.__wrapped__
    return function


def fill(iterator: Any) -> None:
    """Gives an iterator's workers all the indices that they may hold. Raises what the job's sampler raises."""
    if iterator._num_workers:
        for _ in range(iterator._prefetch_factor * iterator._num_workers - len(iterator._task_info)):
            iterator._try_put_index()


def close(iterator: Any) -> None:
    """Ends an iterator's workers, also those of one whose creation failed, on which torch's own end would fail."""
    if not hasattr(iterator, "_shutdown_workers"):
        return
    state = vars(iterator)
    if "_workers" not in state:
        state["_shutdown"] = True
    state.setdefault("_workers_status", [True] * len(state.get("_workers", ())))
    iterator._shutdown_workers()


class LoaderRelay:
    """Delivers the batches of one iterator of the job, from whichever iterator has them. Keeps neither it nor its loader alive."""

    def __init__(
        self, swap: LoaderSwap, iterator: Any, parts: LoaderParts, options: LoaderOptions, number: int
    ) -> None:
        """`options`: those with which the iterator was made, which may differ from the loader's own."""
        self.parts = parts
        self.number = number  # of the loader
        self.options = self._first = options
        self.plan: Any = None  # the plan that was last followed
        self.judged: Any = None  # by which plan, and the verdict
        self.trains = swap.torch.is_grad_enabled()  # in the last fetch
        self.weighed = False
        self.process = os.getpid()
        self._swap = swap
        self._job = weakref.ref(iterator)
        self._others: dict[LoaderOptions, Any] = {}
        self._current: Any = None  # None, here and below: the job's own, to which a reference would be a cycle
        self._out: deque[tuple[Any, int]] = deque()  # iterators with batches out, and the end of their tasks
        iterator._next_data = self.next_data

    def next_data(self) -> Any:
        """Stands for `_next_data` of the job's iterator."""
        swap, thread = self._swap, get_ident()
        nested = thread in swap.fetching
        swap.fetching.add(thread)
        try:
            entering = swap.before_fetch(self)
            if entering is not None:
                fill(entering)
            source = self._source()
            try:
                batch = type(source)._next_data(source)
            except StopIteration:
                if getattr(source, "_shutdown", True):
                    swap.quietly(self._end)
                raise
            if not self.weighed:
                swap.weigh(self, batch)
            return batch
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if not nested:
                swap.fetching.discard(thread)

    def turn(self, wanted: LoaderOptions) -> Any:
        """Hands the rest of the epoch to an iterator with these options. Returns it: it is to be filled."""
        job: Any = self._job()
        entering = job if wanted == self._first else self._others.get(wanted)
        if entering is None:
            self._close_spare()
            entering = self._others[wanted] = made(self.parts.with_options(wanted), self.number, begins=False)
        leaving = job if self._current is None else self._current
        leaving._sampler_iter, entering._sampler_iter = iter(()), leaving._sampler_iter
        if leaving._num_workers and leaving._task_info:
            self._out.append((self._current, leaving._send_idx))
        self._current = None if entering is job else entering
        self.options = wanted
        if (
            self._first.num_workers
        ):  # else it has a fetcher of its own; the recorder times loading in this process there
            vars(job).pop("_dataset_fetcher", None)
            if not wanted.num_workers:
                job._dataset_fetcher = entering._dataset_fetcher
        return entering

    def worker(self) -> int | None:
        """The process of a running worker, if there is one."""
        workers = getattr(self._job() if self._current is None else self._current, "_workers", None)
        return workers[0].pid if workers else None

    def _source(self) -> Any:
        """The iterator whose batch is next."""
        job: Any = self._job()
        while self._out:
            iterator, end = self._out[0]
            iterator = job if iterator is None else iterator
            if any(task < end for task in iterator._task_info):
                return iterator
            self._out.popleft()
        return job if self._current is None else self._current

    def _close_spare(self) -> None:
        """Keeps, besides the job's own iterator, only those that are in use."""
        used = [self._current, *(iterator for iterator, _ in self._out)]
        for options, iterator in list(self._others.items()):
            if not any(iterator is each for each in used):
                del self._others[options]
                close(iterator)

    def _end(self) -> None:
        """Ends all workers at the end of the epoch. A further fetch finds the job's own iterator exhausted."""
        if not self._others:
            return
        job: Any = self._job()
        current = self._current
        others, self._others, self._current = self._others, {}, None
        if current is not None:
            job._sampler_iter = current._sampler_iter
        for iterator in (job, *others.values()):
            close(iterator)
