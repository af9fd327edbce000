"""The boundaries where torch is touched. Every one lies outside compiled regions, keeps types and signatures, and lets through exactly
what the original returns or raises; what the recorder does at them happens behind a wall.

While dynamo traces, each wrapper is the original: `is_compiling()` is a constant to it, so graphs stay what they were.
"""

from __future__ import annotations

import functools
import os
import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .capturing import watch
from .phases import BACKWARD as IN_BACKWARD
from .phases import CLIP, FORWARD, GAP, INPUT
from .phases import OPTIMIZER as IN_OPTIMIZER
from .pinning import timed_loop
from .ring import PHASE, SINCE, STEP
from .standins import hide_frame
from .tape import BACKWARD, BACKWARD_END, BATCH, FETCH, OPTIMIZER, OPTIMIZER_END
from .wall import let_pass
from .workers import tell_workers, timed_fetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .recorder import Recorder


# Who else writes checkpoints: (module, function).
SAVERS = (("safetensors.torch", "save_file"), ("torch.distributed.checkpoint.state_dict_saver", "save"))


def apply(torch: Any, recorder: Recorder) -> list[Any]:
    """Patch what is there; what a torch of another version lacks is left out and noted in the facts. Returns the wrappers."""
    missing: list[str] = []
    wrappers: list[Any] = []
    for patch in (
        _loader,
        _worker_loop,
        _pin_loop,
        _backward,
        _optimizer,
        _scaler,
        _ddp,
        _data_parallel,
        _save,
        _fsync,
        _collector,
        _graphs,
    ):
        try:
            wrappers += patch(torch, recorder)
        except Exception as error:  # what one patch does not find is no reason to leave the others out
            missing.append("%s: %s" % (patch.__name__.strip("_"), error))
    if missing:
        recorder.facts.values["unpatched"] = missing
    return wrappers


def _quietly(recorder: Recorder, call: Callable[..., Any], *args: Any) -> Any:
    """The wall: whatever goes wrong behind it is counted and is nothing to the job. What its signal handlers raise passes."""
    try:
        return call(*args)
    except Exception:
        _failed(recorder)
        return None


def _failed(recorder: Recorder) -> None:
    """Called where an exception was caught; the hot wrappers have the wall written out, a call less on each mark."""
    let_pass()
    try:
        recorder.failed()
    except Exception:
        recorder.active = False


def _wraps(original: Callable[..., Any]) -> Callable[[Any], Any]:
    """As `functools.wraps`, but a wrapper shows the original's annotations or none, never its own."""

    def decorate(wrapper: Any) -> Any:
        wrapper.__annotations__ = {}
        return functools.wraps(original)(wrapper)

    return decorate


def count_elements(batch: Any, tensor: Any) -> int:
    """Elements of the first tensor of a list, what the default collate makes of pairs; -1 where a batch is something else."""
    return int(batch[0].numel()) if type(batch) is list and batch and type(batch[0]) is tensor else -1


def _loader(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data import dataloader

    base: Any = dataloader._BaseDataLoaderIter
    base._rn50_loader = -1
    original_next = base.__next__
    tape, grad_enabled, tensor = recorder.tape, torch.is_grad_enabled, torch.Tensor
    fetches, came = tape.marks[FETCH], tape.marks[BATCH].append

    @_wraps(original_next)
    def __next__(self: Any) -> Any:
        token = None
        try:
            if tape.on and id(self) == tape.iterator and grad_enabled() and get_ident() == tape.thread:
                token = tape.fetch
                now = perf_counter_ns()
                fetches.append(now)
                words = tape.words
                words[PHASE] = INPUT
                words[SINCE] = now
                words[STEP] = tape.step = tape.step + 1
                if len(fetches) >= tape.fetches:
                    recorder.read_tape(self)
            elif recorder.active:
                token = recorder.fetch_begin(self)
        except Exception:
            _failed(recorder)
        if token is None:
            return original_next(self)
        try:
            batch = original_next(self)
        except BaseException as error:
            _quietly(recorder, recorder.fetch_failed, token)
            hide_frame(error)
            raise
        try:
            if tape.on:
                now = perf_counter_ns()
                came(now)
                # asking a tensor for its size takes 5 us after compute, for its number of elements 1 us
                if (
                    type(batch) is not list
                    or not batch
                    or type(batch[0]) is not tensor
                    or batch[0].numel() != tape.elements
                ):
                    tape.count(now, batch, count_elements(batch, tensor))
                words = tape.words
                words[PHASE] = FORWARD
                words[SINCE] = now
            else:
                recorder.fetch_end(token, batch)
        except Exception:
            _failed(recorder)
        return batch

    base.__next__ = __next__

    iterators = [
        iterator_init(recorder, iterator)
        for iterator in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    ]
    return [__next__, loader_init(recorder, dataloader.DataLoader), *iterators, *_workers(recorder, dataloader)]


def loader_init(recorder: Recorder, loader_class: Any) -> Any:
    original = loader_class.__init__

    @_wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.loader_made, self)

    loader_class.__init__ = __init__
    return __init__


def iterator_init(recorder: Recorder, iterator: Any) -> Any:
    original = iterator.__init__

    @_wraps(original)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        began = perf_counter_ns()
        _quietly(recorder, tell_workers, recorder.loaders.numbers.get(loader))
        original(self, loader, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.iterator_made, self, loader, began)

    iterator.__init__ = __init__
    return __init__


def _workers(recorder: Recorder, dataloader: Any) -> list[Any]:
    """Where workers that live on begin an epoch, and where workers end: outside of any fetch, and no step of the loop's own."""
    iterator = dataloader._MultiProcessingDataLoaderIter
    reset, end = iterator._reset, iterator._shutdown_workers

    @_wraps(reset)
    def _reset(self: Any, *args: Any, **kwargs: Any) -> None:
        began = perf_counter_ns()
        reset(self, *args, **kwargs)
        # the first time, its making is around this
        if recorder.active and not kwargs.get("first_iter", len(args) > 1 and args[1]):
            _quietly(recorder, recorder.epoch_begun, self, began)

    @_wraps(end)
    def _shutdown_workers(self: Any, *args: Any, **kwargs: Any) -> None:
        # an iterator in a cycle may be let go when the interpreter has cleared this module
        token = _quietly(recorder, recorder.workers_end, self) if _quietly is not None and recorder.active else None
        try:
            end(self, *args, **kwargs)
        finally:
            if token is not None:
                _quietly(recorder, recorder.workers_ended, token)

    iterator._reset, iterator._shutdown_workers = _reset, _shutdown_workers
    return [_reset, _shutdown_workers]


def _time_batches(recorder: Recorder) -> None:
    """In a worker: time each batch where it is made. The training process never meets this wrapper: see `InProcess.watch`."""
    from torch.utils.data._utils import fetch as module

    clock: Any = recorder.worker
    for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetcher.fetch = timed_fetch(fetcher.fetch, clock, recorder.failed)  # type: ignore[method-assign]


def _worker_loop(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import worker as module

    return [worker_loop(recorder, module)]


def worker_loop(recorder: Recorder, module: Any) -> Any:
    original = module._worker_loop

    @_wraps(original)  # name and qualified name too: spawned workers find it by them
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        worker = kwargs.get("worker_id", args[10] if len(args) > 10 else -1)
        queue = kwargs.get("data_queue", args[3] if len(args) > 3 else None)
        _quietly(recorder, recorder.become_worker, worker, queue)
        if recorder.worker is not None:
            _quietly(recorder, _time_batches, recorder)
        try:
            return original(*args, **kwargs)
        finally:
            if recorder.worker is not None:
                _quietly(recorder, recorder.worker.leave)

    module._worker_loop = _worker_loop
    return _worker_loop


def _pin_loop(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import pin_memory as module

    module._pin_memory_loop = timed_loop(module._pin_memory_loop, recorder)
    return [module._pin_memory_loop]


def _backward(torch: Any, recorder: Recorder) -> list[Any]:
    original = torch.autograd.backward
    tape = recorder.tape
    begun, ended = tape.marks[BACKWARD].append, tape.marks[BACKWARD_END].append

    @_wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        account = None
        try:
            if tape.on:
                if not tape.inside_backward:
                    account = tape.account
                    now = perf_counter_ns()
                    begun(now)
                    words = tape.words
                    words[PHASE] = IN_BACKWARD
                    words[SINCE] = now
                    tape.inside_backward = True
            elif recorder.active:
                account = recorder.backward_begin(args[0] if args else kwargs.get("tensors"))
        except Exception:
            _failed(recorder)
        try:
            return original(*args, **kwargs)
        finally:
            if account is not None:
                try:
                    if tape.on:
                        now = perf_counter_ns()
                        ended(now)
                        words = tape.words
                        words[PHASE] = CLIP
                        words[SINCE] = now
                        tape.inside_backward = False
                    else:
                        recorder.backward_end(account)
                except Exception:
                    _failed(recorder)

    torch.autograd.backward = backward  # Tensor.backward calls it by this name
    _known_to_jit(original, backward)
    return [backward]


def _known_to_jit(original: Any, wrapper: Any) -> None:
    """TorchScript knows the functions that it has an operator for by identity: scripted code may call this one."""
    module = sys.modules.get("torch.jit._builtins")
    operators = getattr(module, "_builtin_ops", [])
    operators += [(wrapper, operator) for function, operator in operators if function is original]
    table = getattr(module, "_builtin_table", None) or {}  # None until something is scripted
    if id(original) in table:
        table[id(wrapper)] = table[id(original)]


def _optimizer(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.optim import optimizer as module

    # true to dynamo, and the cheapest of its kind to everybody else
    is_compiling = torch.compiler.is_dynamo_compiling
    tape = recorder.tape
    begun, ends = tape.marks[OPTIMIZER].append, tape.marks[OPTIMIZER_END]

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            if tape.on:
                now = perf_counter_ns()
                if id(optimizer) != tape.optimizer:
                    tape.others[now] = id(optimizer)
                begun(now)
                words = tape.words
                words[PHASE] = IN_OPTIMIZER
                words[SINCE] = now
            elif recorder.active:
                recorder.optimizer_begin(optimizer)
        except Exception:
            _failed(recorder)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            if tape.on and len(ends) < tape.updates:
                now = perf_counter_ns()
                ends.append(now)
                words = tape.words
                words[PHASE] = IN_BACKWARD if tape.inside_backward else GAP
                words[SINCE] = now
            elif recorder.active:
                recorder.optimizer_end(optimizer)
        except Exception:
            _failed(recorder)

    module.register_optimizer_step_pre_hook(before_step)
    module.register_optimizer_step_post_hook(after_step)
    return [before_step, after_step]


def _scaler(torch: Any, recorder: Recorder) -> list[Any]:
    scaler = torch.amp.grad_scaler.GradScaler
    original = scaler.step

    @_wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        # switched off, it calls the optimizer and does no more
        if not recorder.active or not getattr(self, "_enabled", True):
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


def _ddp(torch: Any, recorder: Recorder) -> list[Any]:
    if not torch.distributed.is_available():
        return []
    ddp = torch.nn.parallel.DistributedDataParallel
    original = ddp.__init__

    @_wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.ddp_made, self)

    ddp.__init__ = __init__
    return [__init__]


def _data_parallel(torch: Any, recorder: Recorder) -> list[Any]:
    parallel = torch.nn.DataParallel
    original = parallel.__init__

    @_wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if recorder.active:
            _quietly(recorder, recorder.precision.data_parallel, self)

    parallel.__init__ = __init__
    return [__init__]


def _around(
    recorder: Recorder, original: Callable[..., Any], begin: Callable[[], Any], end: Callable[[Any], None]
) -> Any:
    @_wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        token = _quietly(recorder, begin) if recorder.active else None
        try:
            return original(*args, **kwargs)
        finally:
            if token is not None:
                _quietly(recorder, end, token)

    return wrapper


def _save(torch: Any, recorder: Recorder) -> list[Any]:
    wrapper = _around(recorder, torch.save, recorder.save_begin, recorder.save_end)
    torch.save = torch.serialization.save = wrapper
    return [wrapper]


def save_of_library(recorder: Recorder, module: str, name: str) -> None:
    """A library whose function writes checkpoints has been imported."""
    owner: Any = sys.modules[module]
    setattr(owner, name, _around(recorder, getattr(owner, name), recorder.save_begin, recorder.save_end))


def _fsync(torch: Any, recorder: Recorder) -> list[Any]:
    os.fsync = _around(recorder, os.fsync, recorder.fsync_begin, recorder.fsync_end)
    return [os.fsync]


def _collector(torch: Any, recorder: Recorder) -> list[Any]:
    recorder.garbage.listen()
    return []


def _graphs(torch: Any, recorder: Recorder) -> list[Any]:
    return watch(torch, recorder.captures, recorder.failed)
