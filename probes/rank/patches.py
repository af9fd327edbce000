"""The boundaries where torch is touched. Every one lies outside compiled regions, keeps types and signatures, and lets through exactly
what the original returns or raises; what the recorder does at them happens behind a wall.

While dynamo traces, each wrapper is the original: `is_compiling()` is a constant to it, so graphs stay what they were.
"""

import functools
import gc
import os
from time import perf_counter_ns


def apply(torch, recorder):
    """Patch what is there; what a torch of another version lacks is left out and noted in the facts. Returns the wrappers."""
    missing, wrappers = [], []
    for patch in (_loader, _fetchers, _worker_loop, _backward, _optimizer, _scaler, _ddp, _save, _fsync, _collector):
        try:
            wrappers += patch(torch, recorder)
        except (AttributeError, ImportError) as error:
            missing.append("%s: %s" % (patch.__name__.strip("_"), error))
    if missing:
        recorder.facts.values["unpatched"] = missing
    return wrappers


def _quietly(recorder, call, *args):
    """The wall: whatever goes wrong behind it is counted and is nothing to the job."""
    try:
        return call(*args)
    except Exception:
        try:
            recorder.failed()
        except Exception:
            recorder.active = False
        return None


def _loader(torch, recorder):
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    original_next = base.__next__

    @functools.wraps(original_next)
    def __next__(self):
        token = _quietly(recorder, recorder.fetch_begin, self) if recorder.active else None
        if token is None:
            return original_next(self)
        try:
            batch = original_next(self)
        except BaseException:
            account, training, loader = token
            _quietly(recorder, account.fetch_stop, training, loader)
            raise
        _quietly(recorder, recorder.fetch_end, token, batch)
        return batch

    base.__next__ = __next__

    iterators = [
        _iterator_init(recorder, iterator)
        for iterator in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    ]

    original_init = dataloader.DataLoader.__init__

    @functools.wraps(original_init)
    def __init__(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.loader_made, self)

    dataloader.DataLoader.__init__ = __init__
    return [__next__, __init__, *iterators]


def _iterator_init(recorder, iterator):
    original = iterator.__init__

    @functools.wraps(original)
    def __init__(self, loader, *args, **kwargs):
        began = perf_counter_ns()
        recorder.starting_loader = recorder.loader_ids.get(loader, -1)  # inherited by the workers forked in here
        original(self, loader, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.iterator_made, self, loader, began)

    iterator.__init__ = __init__
    return __init__


def _fetchers(torch, recorder):
    from torch.utils.data._utils import fetch as module

    return [_fetcher(recorder, fetcher) for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher)]


def _fetcher(recorder, fetcher):
    original = fetcher.fetch

    @functools.wraps(original)
    def fetch(self, possibly_batched_index):
        clock = _quietly(recorder, recorder.batch_clock) if recorder.active else None
        began = _quietly(recorder, clock.begin) if clock is not None else None
        batch = original(self, possibly_batched_index)
        if began is not None:
            size = len(possibly_batched_index) if isinstance(possibly_batched_index, (list, tuple)) else 1
            _quietly(recorder, clock.end, began, size)
        return batch

    fetcher.fetch = fetch
    return fetch


def _worker_loop(torch, recorder):
    from torch.utils.data._utils import worker as module

    original = module._worker_loop

    @functools.wraps(original)  # name and qualified name too: spawned workers find it by them
    def _worker_loop(*args, **kwargs):
        worker = kwargs.get("worker_id", args[10] if len(args) > 10 else -1)
        _quietly(recorder, recorder.become_worker, worker, getattr(recorder, "starting_loader", -1))
        try:
            return original(*args, **kwargs)
        finally:
            if recorder.worker is not None:
                _quietly(recorder, recorder.worker.leave)

    module._worker_loop = _worker_loop
    return [_worker_loop]


def _backward(torch, recorder):
    original = torch.autograd.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(*args, **kwargs):
        if is_compiling() or not recorder.active:
            return original(*args, **kwargs)
        account = _quietly(recorder, recorder.backward_begin)
        try:
            return original(*args, **kwargs)
        finally:
            if account is not None:
                _quietly(recorder, recorder.backward_end, account)

    torch.autograd.backward = backward  # Tensor.backward calls it by this name
    return [backward]


def _optimizer(torch, recorder):
    from torch.optim import optimizer as module

    is_compiling = torch.compiler.is_compiling

    def before_step(optimizer, args, kwargs):
        if is_compiling():
            return
        if recorder.active:
            _quietly(recorder, recorder.optimizer_begin, optimizer)

    def after_step(optimizer, args, kwargs):
        if is_compiling():
            return
        if recorder.active:
            _quietly(recorder, recorder.optimizer_end, optimizer)

    module.register_optimizer_step_pre_hook(before_step)
    module.register_optimizer_step_post_hook(after_step)
    return [before_step, after_step]


def _scaler(torch, recorder):
    scaler = torch.amp.grad_scaler.GradScaler
    original = scaler.step

    @functools.wraps(original)
    def step(self, optimizer, *args, **kwargs):
        if not recorder.active:
            return original(self, optimizer, *args, **kwargs)
        account = _quietly(recorder, recorder.own_account)
        before = account.optimizers if account is not None else 0
        _quietly(recorder, recorder.optimizer_begin, optimizer)
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            if account is not None:
                # the hooks fire inside unless inf or nan made the scaler skip the update
                if account.optimizers == before:
                    _quietly(recorder, account.update_skipped)
                _quietly(recorder, recorder.optimizer_end, optimizer, False)

    scaler.step = step
    return [step]


def _ddp(torch, recorder):
    if not torch.distributed.is_available():
        return []
    ddp = torch.nn.parallel.DistributedDataParallel
    original = ddp.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.ddp_made, self)

    ddp.__init__ = __init__
    return [__init__]


def _around(recorder, original, begin, end):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        token = _quietly(recorder, begin) if recorder.active else None
        try:
            return original(*args, **kwargs)
        finally:
            if token is not None:
                _quietly(recorder, end, token)

    return wrapper


def _save(torch, recorder):
    wrapper = _around(recorder, torch.save, recorder.save_begin, recorder.save_end)
    torch.save = torch.serialization.save = wrapper
    return [wrapper]


def _fsync(torch, recorder):
    os.fsync = _around(recorder, os.fsync, recorder.fsync_begin, recorder.fsync_end)
    return [os.fsync]


def _collector(torch, recorder):
    def collecting(phase, info):
        if recorder.active:
            _quietly(recorder, recorder.collecting, phase)

    gc.callbacks.append(collecting)
    return [collecting]
