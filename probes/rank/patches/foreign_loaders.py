"""Batches that do not come from torch's loaders: iterators of known libraries, and the user's own prefetch threads.

This imports nothing. At the first backward pass and at each refresh of the facts, it looks up classes that the job has loaded. Python
looks up `__next__` on the class at each iteration, so a running loop is timed from its next batch on. Steps without a known source have
`FLAG_NO_LOADER`.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident, get_native_id
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..facts import process_facts
from ..facts.known_loaders import LOADERS_MAX
from ..hidden_frames import hide_frame, wraps
from ..layout import PHASE_BITS
from ..ring import PHASE
from ..steps.mark_buffer import BATCH
from ..steps.step_account import TRAINING
from ..steps.step_phases import FORWARD, INPUT
from .loader_patches import iterator_init, loader_init, wrap_worker_loop
from .wrappers import quietly

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.loader_documents import DescribedLoader
    from ..recorder import Recorder

    Token = tuple[Any, bool, int]

# (module, class, library) of the iterators that training loops use
SOURCES = (
    ("nvidia.dali.plugin.pytorch", "DALIGenericIterator", "nvidia.dali"),
    ("ffcv.loader.epoch_iterator", "EpochIterator", "ffcv"),
    ("torchdata.nodes.loader", "LoaderIterator", "torchdata.nodes"),
    ("prefetch_generator", "BackgroundGenerator", "prefetch_generator"),
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "tf.data"),
    ("tensorflow.python.data.ops.dataset_ops", "NumpyIterator", "tf.data"),
)
# Libraries that can feed a loop without a torch loader. They are reported if the input wait is unknown.
LIBRARIES = (
    "nvidia.dali", "ffcv", "webdataset", "torchdata.nodes", "datasets", "streaming", "litdata", "tensorflow", "grain",
    "prefetch_generator", "petastorm", "deeplake", "ray.data",
)  # fmt: skip
STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
_LOADER = "_rn50_loader"  # attribute of a queue or of an iterator's owner: number of its loader
_BEGUN = "_rn50_begun"  # attribute of an iterator or a queue: a batch was taken from it
_ALIASES = ("__next__", "next")


def install(recorder: Recorder, after: Callable[[str, Callable[[], None]], Any]) -> None:
    """Follows other libraries' loaders. `after(name, callback)` makes a finder that calls back once the module has been imported."""
    recorder.foreign = Foreign(recorder)
    # this loader starts workers with its own loop before any backward pass
    sys.meta_path.insert(0, after(STATEFUL, lambda: quietly(recorder, _follow_stateful, recorder)))


def _follow_stateful(recorder: Recorder) -> None:
    """Patches torchdata's StatefulDataLoader, a DataLoader with its own constructors and worker loop."""
    module: Any = sys.modules[STATEFUL]
    loader_init(recorder, module.StatefulDataLoader)
    for name in ("_StatefulSingleProcessDataLoaderIter", "_StatefulMultiProcessingDataLoaderIter"):
        iterator_init(recorder, getattr(module, name))
    worker: Any = sys.modules[module._worker_loop.__module__]
    module._worker_loop = wrap_worker_loop(recorder, worker)


class Foreign:
    """This process's loaders of other libraries. `inside`: True during a fetch from one of them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._timed: set[Any] = set()
        self._owners: dict[int, Any] = {}  # loader number -> weak reference to the loader
        self._queues_watched = False
        self.forget()

    def forget(self) -> None:
        """Resets in a new or forked process."""
        self.inside = False
        self._fillers: dict[int, int] = {}  # threads that fill queues -> kernel thread id
        self._waiting: tuple[int, Token] | None = None  # id of the queue that the training thread waits for

    def refresh(self) -> None:
        """Patches the classes loaded so far and records libraries that may feed the job. Never raises, so that its callers continue."""
        quietly(self._recorder, self._refresh)

    def _refresh(self) -> None:
        recorder = self._recorder
        for module, name, library in SOURCES:
            iterator = _loaded(module, name)
            if iterator is not None and iterator not in self._timed:
                self._timed.add(iterator)
                quietly(recorder, _time_iterator, recorder, iterator, library)
        found = [name for name in LIBRARIES if name in sys.modules]
        if found:
            recorder.facts.values["input_libraries"] = found
        fed = TRAINING in recorder.account.loaders.values()
        if recorder.fetching_threads and not fed and not self._queues_watched:
            self._queues_watched = True
            recorder.facts.values["fetches_in_another_thread"] = True
            _watch_queues(recorder)

    def begin(self, iterator: Any, library: str) -> Token | None:
        """Called when the training thread requests a batch from a library's iterator. None if the call is not recorded."""
        recorder = self._recorder
        account = recorder.own_account()
        if account is None or account.phase == INPUT:
            return None
        own = getattr(iterator, "__dict__", {})
        behind = getattr(own.get("generator"), _LOADER, -1)
        owner = own.get("loader")
        number = behind if behind >= 0 else self._number(iterator if owner is None else owner, iterator, library)
        return self._begun(iterator, account, number)

    def begin_for(self, source: Any, number: int) -> Token | None:
        """Called when the training thread requests a batch that reaches it through other code than the loader's of this number."""
        account = self._recorder.own_account()
        if account is None or account.phase == INPUT or self.inside:
            return None
        return self._begun(source, account, number)

    def fills(self, queue: Any, loader: int) -> None:
        """Records that a thread puts batches of this loader into a queue. A thread that reuses another's id must fetch first."""
        place, number = get_ident(), get_native_id()
        if len(self._fillers) >= LOADERS_MAX and place not in self._fillers:
            return
        if self._fillers.setdefault(place, number) != number:
            self._fillers[place] = number
            self._recorder.fetching_threads.pop(place, None)
            return
        new = _LOADER not in queue.__dict__
        queue.__dict__[_LOADER] = loader
        if new:
            _time_queue(self._recorder, queue)

    def begin_queue(self, queue: Any) -> None:
        """Called when a thread waits for or takes an item of a queue that another thread fills with a DataLoader's batches."""
        recorder = self._recorder
        if not recorder.active:
            return
        account = recorder.own_account()
        if account is None:
            recorder.fetches(queue.__dict__[_LOADER])  # one prefetch thread passes batches to another
        elif account.phase != INPUT:
            self._waiting = id(queue), self._begun(queue, account, queue.__dict__[_LOADER])
            self.inside = False

    def end_queue(self, queue: Any, item: Any) -> None:
        token = self._pending(queue)
        if token is not None:
            self.end(queue, token, item)

    def timed_out(self, queue: Any) -> None:
        token = self._pending(queue)
        if token is not None:
            self.failed(queue, token, over=False)

    def _pending(self, queue: Any) -> Token | None:
        """Returns, once, the token of the training thread's wait for this queue; else None."""
        waiting = self._waiting
        if waiting is None or waiting[0] != id(queue) or self._recorder.account.thread != get_ident():
            return None
        self._waiting = None
        token: Token = waiting[1]
        return token

    def _begun(self, source: Any, account: Any, number: int) -> Token:
        own = getattr(source, "__dict__", {})
        token: Token = self._recorder.loading.begin_fetch(account, number, _BEGUN not in own, perf_counter_ns())
        self.inside = True
        return token

    def end(self, source: Any, token: Token, batch: Any) -> None:
        recorder, buffer = self._recorder, self._recorder.buffer
        self.inside = False
        getattr(source, "__dict__", {})[_BEGUN] = True
        if batch is None:  # the thread's end marker
            self.failed(source, token, over=True)
        elif buffer.on:
            now = perf_counter_ns()
            buffer.marks[BATCH].append(now)
            buffer.note_batch_size(now, batch)
            buffer.words[PHASE] = now << PHASE_BITS | FORWARD
        else:
            recorder.loading.fetch_end(token, batch)

    def failed(self, source: Any, token: Token, over: bool) -> None:
        """Called when a source raised or is exhausted (`over`). A library may reuse the iterator in the next epoch."""
        self.inside = False
        if over:
            getattr(source, "__dict__", {}).pop(_BEGUN, None)
        self._recorder.loading.fetch_failed(token)

    def _number(self, owner: Any, iterator: Any, library: str) -> int:
        own = getattr(owner, "__dict__", None)
        if own is None:
            return -1
        number = own.get(_LOADER)
        if number is None:
            number = own[_LOADER] = self._enrol(owner, iterator, library)
        return int(number)

    def _enrol(self, owner: Any, iterator: Any, library: str) -> int:
        """Registers an iterator and returns its number; -1 if there are too many.

        An iterator recreated at the same line in each epoch keeps its number; one that exists at the same time gets another.
        """
        file, line = process_facts.call_site()
        size = owner.__dict__.get("batch_size")
        described: DescribedLoader = {
            "file": file,
            "line": line,
            "class": type(iterator).__qualname__,
            "library": library,
            "batch_size": size if isinstance(size, int) else None,
        }
        known = self._recorder.loading.loaders.described
        if len(known) >= LOADERS_MAX:
            return -1
        gone = (n for n, loader in known.items() if loader == described and self._owners.get(n, _nobody)() is None)
        number = next(gone, len(known))
        known[number] = described
        try:
            self._owners[number] = weakref.ref(owner)
        except TypeError:
            self._owners.pop(number, None)
        return number


def _nobody() -> None:
    return None


def _loaded(module: str, name: str) -> Any:
    """A class of an imported module, or None. Does not trigger modules that load lazily."""
    found = sys.modules.get(module)
    return None if found is None else object.__getattribute__(found, "__dict__").get(name)


def _time_iterator(recorder: Recorder, iterator: Any, library: str) -> None:
    original = iterator.__next__
    foreign = recorder.foreign

    @wraps(original)
    def __next__(self: Any) -> Any:
        token = quietly(recorder, foreign.begin, self, library) if recorder.active else None
        try:
            batch = original(self)
        except BaseException as error:
            if token is not None:
                quietly(recorder, foreign.failed, self, token, isinstance(error, StopIteration))
            hide_frame(error)
            raise
        if token is not None:
            quietly(recorder, foreign.end, self, token, batch)
        return batch

    for alias in _ALIASES:
        if alias == "__next__" or vars(iterator).get(alias) is original:
            setattr(iterator, alias, __next__)


def _watch_queues(recorder: Recorder) -> None:
    """Patches `Queue.put` to find queues that a prefetch thread fills. Called only after such a thread was seen."""
    kind: Any = sys.modules["queue"].Queue
    original = kind.put
    foreign = recorder.foreign

    @wraps(original)
    def put(self: Any, *args: Any, **kwargs: Any) -> Any:
        loader = recorder.fetching_threads.get(get_ident())
        if loader is not None:
            quietly(recorder, foreign.fills, self, loader)
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    kind.put = put


def _time_queue(recorder: Recorder, queue: Any) -> None:
    """Patches the methods that one queue's `get` calls, since a loop may already hold `get` itself. They run under the queue's lock."""
    if "_get" in vars(queue):
        return  # the job has set it
    foreign = recorder.foreign
    known = weakref.ref(queue)  # an attribute that refers to its own object would keep it and its batches alive
    original_get, original_wait = weakref.WeakMethod(queue._get), weakref.WeakMethod(queue.not_empty.wait)

    def wait(timeout: float | None = None) -> bool:
        try:
            quietly(recorder, foreign.begin_queue, known())
            notified: bool = original_wait()(timeout)  # type: ignore[misc]
            if not notified:
                quietly(recorder, foreign.timed_out, known())
            return notified
        except BaseException as error:
            hide_frame(error)
            raise

    def _get() -> Any:
        try:
            quietly(recorder, foreign.begin_queue, known())
            item = original_get()()  # type: ignore[misc]
        except BaseException as error:
            hide_frame(error)
            raise
        quietly(recorder, foreign.end_queue, known(), item)
        return item

    queue._get, queue.not_empty.wait = _get, wait
