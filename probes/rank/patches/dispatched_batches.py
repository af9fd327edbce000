"""Batches that rank 0 loads for all ranks: accelerate's `DataLoaderDispatcher`, its default for iterable data sets.

Within each request for the next batch rank 0 fetches the batches of all ranks and broadcasts them, and each rank keeps its own slice. So a
request is one fetch on every rank: on rank 0 loading and broadcast, on the others the wait for rank 0. Fetches from the loader inside
belong to it.

The class is patched once it has been imported; nothing is imported here. A loop gets a generator, as without us, which closes the
dispatcher's when it is closed or dropped.
"""

from __future__ import annotations

import sys
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from .wrappers import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..recorder import Recorder

MODULE = "accelerate.data_loader"
DISPATCHER = "DataLoaderDispatcher"


def install(recorder: Recorder, after: Callable[[str, Callable[[], None]], Any]) -> None:
    """`after(name, callback)` makes a finder that calls back once the module has been imported."""
    sys.meta_path.insert(0, after(MODULE, lambda: quietly(recorder, _follow, recorder)))


def _follow(recorder: Recorder) -> None:
    dispatcher: Any = vars(sys.modules[MODULE]).get(DISPATCHER)
    if dispatcher is None:
        return
    original = dispatcher.__iter__

    @wraps(original)
    def __iter__(self: Any) -> Any:
        try:
            batches = original(self)
        except BaseException as error:
            hide_frame(error)
            raise
        if not recorder.active or type(batches) is not GeneratorType:
            return batches
        marked = quietly(recorder, _marked, DispatchedBatches(recorder, self, batches))
        return batches if marked is None else marked

    dispatcher.__iter__ = __iter__


def _marked(source: DispatchedBatches) -> Iterator[Any]:
    """A generator with the same batches and the same name."""
    marked: Any = _generated(source)
    marked.__name__, marked.__qualname__ = source.batches.__name__, source.batches.__qualname__
    batches: Iterator[Any] = marked
    return batches


def _generated(source: DispatchedBatches) -> Iterator[Any]:
    try:
        while True:
            came = source.fetch()
            if not came:
                return
            yield came.pop()  # keeps no reference to a batch that the loop has dropped
    except GeneratorExit:
        raise  # perhaps at interpreter shutdown, when this module's globals may be gone
    except BaseException as error:
        hide_frame(error)
        raise
    finally:
        source.batches.close()


class DispatchedBatches:
    """One pass over a dispatching loader on this rank. `Foreign` keeps its own note in the instance's `__dict__`."""

    def __init__(self, recorder: Recorder, loader: Any, batches: Any) -> None:
        self._recorder = recorder
        self._loader = loader
        self._number: int | None = None
        self.batches = batches

    def fetch(self) -> list[Any]:
        """The next batch in a list, which is empty at the end."""
        recorder = self._recorder
        token = quietly(recorder, self._begin) if recorder.active else None
        try:
            batch = next(self.batches)
        except BaseException as error:
            over = isinstance(error, StopIteration)
            if token is not None:
                quietly(recorder, recorder.foreign.failed, self, token, over)
            if over:
                return []
            hide_frame(error)
            raise
        if token is not None:
            quietly(recorder, recorder.foreign.end, self, token, batch)
        return [batch]

    def _begin(self) -> Any:
        if self._number is None:
            self._number = self._enrol()
        return self._recorder.foreign.begin_for(self, self._number)

    def _enrol(self) -> int:
        """The number of the loader inside: in older versions (accelerate 0.30) the dispatcher itself is torch's loader."""
        loader, loaders = self._loader, self._recorder.loading.loaders
        own = vars(loader)
        number = loaders.numbers.get(own.get("base_dataloader", loader))
        # with tensor parallelism the ranks compute parts of one batch, which has to come from one of them
        if own.get("submesh_tp") is None:
            loaders.dispatched(number, split=own.get("split_batches") is True)
        return number
