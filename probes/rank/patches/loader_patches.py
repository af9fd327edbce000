"""Patches of torch's DataLoader: its objects, the fetches of the training thread, the start and end of workers, and what workers do."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..workers.worker_batches import WorkerLog, set_loader_of_workers, timed_fetch
from .mark_wrappers import mark_fetches
from .pinning import timed_loop
from .wrappers import around, once_made, quietly

if TYPE_CHECKING:
    from ..recorder import Recorder


def patch_loaders(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data import dataloader

    dataloader._BaseDataLoaderIter._rn50_loader = -1  # type: ignore[attr-defined]
    iterators = [
        iterator_init(recorder, iterator)
        for iterator in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    ]
    return [
        mark_fetches(torch, recorder, dataloader._BaseDataLoaderIter),
        loader_init(recorder, dataloader.DataLoader),
        *iterators,
        *mark_workers(recorder, dataloader),
    ]


def loader_init(recorder: Recorder, loader_class: Any) -> Any:
    def made(loader: Any) -> None:
        recorder.loading.loaders.add(loader)

    return once_made(recorder, loader_class, made)


def iterator_init(recorder: Recorder, iterator: Any) -> Any:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = perf_counter_ns()
        loader = args[1] if len(args) > 1 else kwargs["loader"]
        set_loader_of_workers(recorder.loading.loaders.numbers.get(loader))
        return args[0], loader, began

    def end(made: Any) -> None:
        if recorder.active:
            recorder.loading.iterator_made(*made)

    iterator.__init__ = around(recorder, iterator.__init__, begin, end, raised_too=False)
    return iterator.__init__


def mark_workers(recorder: Recorder, dataloader: Any) -> list[Any]:
    """Times the start of an epoch with persistent workers and the shutdown of workers, both outside of fetches."""
    iterator = dataloader._MultiProcessingDataLoaderIter

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # the first call is part of the iterator's creation
        first = kwargs.get("first_iter", len(args) > 2 and args[2])
        return None if first or not recorder.active else (args[0], perf_counter_ns())

    def end(begun: Any) -> None:
        recorder.loading.epoch_begun(*begun)

    def begin_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return recorder.loading.workers_end(args[0]) if recorder.active else None

    def end_end(phase: Any) -> None:
        recorder.loading.workers_ended(phase)

    iterator._reset = around(recorder, iterator._reset, begin, end, raised_too=False)
    iterator._shutdown_workers = around(recorder, iterator._shutdown_workers, begin_end, end_end)
    return [iterator._reset, iterator._shutdown_workers]


def _time_batches(recorder: Recorder) -> None:
    """Times each batch inside a worker. The training process never runs this wrapper: see `InProcess.watch`."""
    from torch.utils.data._utils import fetch as module

    clock: Any = recorder.worker
    for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetcher.fetch = timed_fetch(fetcher.fetch, clock, recorder.failed)  # type: ignore[method-assign]


def patch_worker_loop(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import worker as module

    return [wrap_worker_loop(recorder, module)]


def wrap_worker_loop(recorder: Recorder, module: Any) -> Any:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        worker = kwargs.get("worker_id", args[10] if len(args) > 10 else -1)
        queue = kwargs.get("data_queue", args[3] if len(args) > 3 else None)
        recorder.become_worker(worker, queue)
        if recorder.worker is not None:
            quietly(recorder, _time_batches, recorder)
        return recorder.worker

    # the wrapper keeps the original's names, because spawned workers import it by name
    module._worker_loop = around(recorder, module._worker_loop, begin, WorkerLog.leave)
    return module._worker_loop


def patch_pinning(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import pin_memory as module

    module._pin_memory_loop = timed_loop(module._pin_memory_loop, recorder)
    return [module._pin_memory_loop]
