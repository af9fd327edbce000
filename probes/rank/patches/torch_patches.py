"""The patches of torch. Each is outside compiled regions, keeps types and signatures, and returns or raises exactly what the original
does. Errors of the recorder in them are swallowed.

While dynamo traces, each wrapper acts as the original: `is_compiling()` is a constant for dynamo, so graphs do not change.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..facts.affinity_facts import threads_are_set
from ..gpu.graph_captures import watch
from ..hidden_frames import hide_frame, wraps
from ..layout import PHASE_BITS
from ..ring import PHASE, STEP
from ..steps.mark_buffer import BACKWARD, BACKWARD_END, BATCH, FETCH, OPTIMIZER, OPTIMIZER_END
from ..steps.step_phases import BACKWARD as IN_BACKWARD
from ..steps.step_phases import CLIP, FORWARD, GAP, INPUT
from ..steps.step_phases import OPTIMIZER as IN_OPTIMIZER
from ..wall import let_pass
from ..workers.worker_batches import WorkerLog, set_loader_of_workers, timed_fetch
from .pinning import timed_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder
    from ..steps.step_account import Account


# Other functions that write checkpoints: (module, function).
SAVERS = (("safetensors.torch", "save_file"), ("torch.distributed.checkpoint.state_dict_saver", "save"))


def apply(torch: Any, recorder: Recorder) -> list[Any]:
    """Patches torch. The facts record patches that fail (other torch versions). Returns the wrappers."""
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
        _tables,
        _evaluation,
        _save,
        _fsync,
        _threads,
        _collector,
        _graphs,
    ):
        try:
            wrappers += patch(torch, recorder)
        except Exception as error:  # a patch without its target must not prevent the others
            missing.append("%s: %s" % (patch.__name__.strip("_"), error))
    if missing:
        recorder.facts.values["unpatched"] = missing
    return wrappers


def _quietly(recorder: Recorder, call: Callable[..., Any], *args: Any) -> Any:
    """Calls `call` and swallows and counts errors of the recorder, so that none reaches the job. Lets signal handlers' exceptions pass."""
    try:
        return call(*args)
    except RecursionError:
        return None  # the job is near its recursion limit: make no further call, not even to count this error
    except Exception:
        _failed(recorder)
        return None


def _failed(recorder: Recorder) -> None:
    """Counts the error that is being handled; call it in an `except` clause. Hot wrappers inline `_quietly` to save a call per mark."""
    if sys.exc_info()[0] is RecursionError:
        return  # near the recursion limit, as in `_quietly`
    let_pass()
    try:
        recorder.failed()
    except Exception:
        recorder.active = False


def _asks_dynamo(recorder: Recorder) -> Callable[[], bool]:
    """A predicate that is True while dynamo traces its caller, else False."""
    compiler = getattr(getattr(recorder, "torch", None), "compiler", None)
    return getattr(compiler, "is_dynamo_compiling", bool)


def count_elements(batch: Any, tensor: Any) -> int:
    """Elements of the first tensor if the batch is a list (the default collate's result for pairs); -1 for other batches."""
    return int(batch[0].numel()) if type(batch) is list and batch and type(batch[0]) is tensor else -1


def _loader(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data import dataloader

    dataloader._BaseDataLoaderIter._rn50_loader = -1  # type: ignore[attr-defined]
    iterators = [
        iterator_init(recorder, iterator)
        for iterator in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    ]
    return [
        _next(torch, recorder, dataloader._BaseDataLoaderIter),
        loader_init(recorder, dataloader.DataLoader),
        *iterators,
        *_workers(recorder, dataloader),
    ]


def _next(torch: Any, recorder: Recorder, base: Any) -> Any:
    original_next = base.__next__
    buffer, grad_enabled, tensor = recorder.buffer, torch.is_grad_enabled, torch.Tensor
    fetches, came = buffer.marks[FETCH], buffer.marks[BATCH].append

    @wraps(original_next)
    def __next__(self: Any) -> Any:
        token = None
        try:
            if buffer.on and id(self) == buffer.iterator and grad_enabled() and get_ident() == buffer.thread:
                token = buffer.fetch
                now = perf_counter_ns()
                fetches.append(now)
                words = buffer.words
                words[STEP] = buffer.step = buffer.step + 1
                at = now << PHASE_BITS
                words[PHASE] = at | INPUT
                buffer.counted_at = buffer.counted_at and at
                if len(fetches) >= buffer.fetches_max:
                    recorder.flush_buffer(self)
            elif recorder.active:
                token = recorder.fetch_begin(self)
        except Exception:
            _failed(recorder)
        try:
            batch = original_next(self)
        except BaseException as error:
            if token is not None:
                _quietly(recorder, recorder.fetch_failed, token)
            hide_frame(error)
            raise
        if token is None:
            return batch
        try:
            if buffer.on:
                now = buffer.counted_at >> PHASE_BITS or perf_counter_ns()
                came(now)
                # reading a tensor's size takes 5 us after compute, its number of elements 1 us
                if (
                    type(batch) is not list
                    or not batch
                    or type(batch[0]) is not tensor
                    or batch[0].numel() != buffer.elements
                ):
                    buffer.note_batch_size(now, batch, count_elements(batch, tensor))
                buffer.words[PHASE] = now << PHASE_BITS | FORWARD
                buffer.phase = FORWARD
            else:
                recorder.fetch_end(token, batch)
        except Exception:
            _failed(recorder)
        return batch

    base.__next__ = __next__
    return __next__


def _around(
    recorder: Recorder,
    original: Callable[..., Any],
    begin: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    end: Callable[[Any], None],
    *,
    raised_too: bool = True,
) -> Any:
    """Wraps a rarely called function. `begin` gets the arguments; `end` gets its result, unless that is None.

    Without `raised_too`, `end` runs only if the original returned.
    """
    is_compiling = _asks_dynamo(recorder)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # an object in a cycle may be finalised after the interpreter has cleared this module
        if is_compiling() or _quietly is None:
            return original(*args, **kwargs)
        token = None
        try:
            token = _quietly(recorder, begin, args, kwargs)
            result = original(*args, **kwargs)
            if token is not None:
                ended, token = token, None
                _quietly(recorder, end, ended)
            return result
        except BaseException as error:
            if token is not None and raised_too:
                _quietly(recorder, end, token)
            hide_frame(error)
            raise

    return wrapper


def _once_made(recorder: Recorder, kind: Any, report: Callable[[Any], None]) -> Any:
    """Wraps a class's constructor to report each new object."""

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def end(made: Any) -> None:
        if recorder.active:
            report(made)

    kind.__init__ = _around(recorder, kind.__init__, begin, end, raised_too=False)
    return kind.__init__


def loader_init(recorder: Recorder, loader_class: Any) -> Any:
    return _once_made(recorder, loader_class, recorder.loader_made)


def iterator_init(recorder: Recorder, iterator: Any) -> Any:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = perf_counter_ns()
        loader = args[1] if len(args) > 1 else kwargs["loader"]
        set_loader_of_workers(recorder.loaders.numbers.get(loader))
        return args[0], loader, began

    def end(made: Any) -> None:
        if recorder.active:
            recorder.iterator_made(*made)

    iterator.__init__ = _around(recorder, iterator.__init__, begin, end, raised_too=False)
    return iterator.__init__


def _workers(recorder: Recorder, dataloader: Any) -> list[Any]:
    """Times the start of an epoch with persistent workers and the shutdown of workers, both outside of fetches."""
    iterator = dataloader._MultiProcessingDataLoaderIter

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # the first call is part of the iterator's creation
        first = kwargs.get("first_iter", len(args) > 2 and args[2])
        return None if first or not recorder.active else (args[0], perf_counter_ns())

    def end(begun: Any) -> None:
        recorder.epoch_begun(*begun)

    def begin_end(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return recorder.workers_end(args[0]) if recorder.active else None

    iterator._reset = _around(recorder, iterator._reset, begin, end, raised_too=False)
    iterator._shutdown_workers = _around(recorder, iterator._shutdown_workers, begin_end, recorder.workers_ended)
    return [iterator._reset, iterator._shutdown_workers]


def _time_batches(recorder: Recorder) -> None:
    """Times each batch inside a worker. The training process never runs this wrapper: see `InProcess.watch`."""
    from torch.utils.data._utils import fetch as module

    clock: Any = recorder.worker
    for fetcher in (module._MapDatasetFetcher, module._IterableDatasetFetcher):
        fetcher.fetch = timed_fetch(fetcher.fetch, clock, recorder.failed)  # type: ignore[method-assign]


def _worker_loop(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import worker as module

    return [worker_loop(recorder, module)]


def worker_loop(recorder: Recorder, module: Any) -> Any:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        worker = kwargs.get("worker_id", args[10] if len(args) > 10 else -1)
        queue = kwargs.get("data_queue", args[3] if len(args) > 3 else None)
        recorder.become_worker(worker, queue)
        if recorder.worker is not None:
            _quietly(recorder, _time_batches, recorder)
        return recorder.worker

    # the wrapper keeps the original's names, because spawned workers import it by name
    module._worker_loop = _around(recorder, module._worker_loop, begin, WorkerLog.leave)
    return module._worker_loop


def _pin_loop(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.utils.data._utils import pin_memory as module

    module._pin_memory_loop = timed_loop(module._pin_memory_loop, recorder)
    return [module._pin_memory_loop]


def _backward(torch: Any, recorder: Recorder) -> list[Any]:
    original = torch.autograd.backward
    buffer = recorder.buffer
    starts, begun = buffer.marks[BACKWARD], buffer.marks[BACKWARD].append

    @wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        account = None
        try:
            if buffer.counting and len(starts) < buffer.marks_max and get_ident() == buffer.thread:
                if buffer.phase != IN_BACKWARD:
                    begun(0)  # so that the buffer is flushed if the loop does nothing else
                    account, buffer.phase = buffer.account, IN_BACKWARD
            elif buffer.on and len(starts) < buffer.marks_max and get_ident() == buffer.thread:
                if not buffer.inside_backward:
                    account = buffer.account
                    now = perf_counter_ns()
                    begun(now)
                    buffer.words[PHASE] = now << PHASE_BITS | IN_BACKWARD
                    buffer.inside_backward = True
            elif recorder.active:
                account = recorder.backward_begin(args[0] if args else kwargs.get("tensors"))
        except Exception:
            _failed(recorder)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if account is not None:
                _quietly(recorder, _backward_ended, recorder, account)
            hide_frame(error)
            raise
        if account is not None:
            try:
                _backward_ended(recorder, account)
            except Exception:
                _failed(recorder)
        return result

    torch.autograd.backward = backward  # Tensor.backward calls it by this name
    _known_to_jit(original, backward)
    return [backward]


def _backward_ended(recorder: Recorder, account: Account) -> None:
    """Ends a backward pass in the buffer or in the account."""
    buffer = recorder.buffer
    if not buffer.on:
        recorder.backward_end(account)
        return
    if not buffer.counted_at:  # else the step is only counted
        now = perf_counter_ns()
        buffer.marks[BACKWARD_END].append(now)
        buffer.words[PHASE] = now << PHASE_BITS | CLIP
    buffer.inside_backward = False
    buffer.phase = CLIP


def _known_to_jit(original: Any, wrapper: Any) -> None:
    """Registers the wrapper with TorchScript, which maps functions to operators by identity: scripted code may call it."""
    module = sys.modules.get("torch.jit._builtins")
    operators = getattr(module, "_builtin_ops", [])
    operators += [(wrapper, operator) for function, operator in operators if function is original]
    table = getattr(module, "_builtin_table", None) or {}  # None until something is scripted
    if id(original) in table:
        table[id(wrapper)] = table[id(original)]


def _optimizer(torch: Any, recorder: Recorder) -> list[Any]:
    from torch.optim import optimizer as module

    # True for dynamo; for all other callers the cheapest predicate
    is_compiling = torch.compiler.is_dynamo_compiling
    buffer = recorder.buffer
    starts, begun, ends = buffer.marks[OPTIMIZER], buffer.marks[OPTIMIZER].append, buffer.marks[OPTIMIZER_END]

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            if buffer.counting and id(optimizer) == buffer.optimizer:
                buffer.phase = IN_OPTIMIZER
            elif buffer.on and len(starts) < buffer.marks_max and not buffer.counted_at:
                now = perf_counter_ns()
                if id(optimizer) != buffer.optimizer:
                    buffer.others[now] = id(optimizer)
                begun(now)
                buffer.words[PHASE] = now << PHASE_BITS | IN_OPTIMIZER
            elif recorder.active:
                recorder.optimizer_begin(optimizer)
        except Exception:
            _failed(recorder)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        try:
            if buffer.on and len(ends) < buffer.updates_max:
                now = perf_counter_ns()
                ends.append(now)
                at = now << PHASE_BITS
                buffer.words[PHASE] = at | (IN_BACKWARD if buffer.inside_backward else GAP)
                buffer.counted_at = buffer.counted_at and at
                buffer.phase = GAP
            elif recorder.active:
                recorder.optimizer_end(optimizer)
        except Exception:
            _failed(recorder)

    module.register_optimizer_step_pre_hook(before_step)
    module.register_optimizer_step_post_hook(after_step)
    return [before_step, after_step, _once_made(recorder, module.Optimizer, recorder.optimizers.made)]


def _scaler(torch: Any, recorder: Recorder) -> list[Any]:
    scaler = torch.amp.grad_scaler.GradScaler

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # a disabled scaler only calls the optimizer
        if not recorder.active or not getattr(args[0], "_enabled", True):
            return None
        optimizer = args[1] if len(args) > 1 else kwargs["optimizer"]
        account = recorder.own_account()
        before = account.optimizers if account is not None else 0
        _quietly(recorder, recorder.optimizer_begin, optimizer)
        return None if account is None else (account, before, optimizer)

    def end(begun: Any) -> None:
        account, before, optimizer = begun
        # the optimizer's hooks have run inside, unless inf or nan made the scaler skip the update
        if account.optimizers == before:
            _quietly(recorder, account.update_skipped)
        recorder.optimizer_end(optimizer, False)

    scaler.step = _around(recorder, scaler.step, begin, end)
    return [scaler.step]


def _ddp(torch: Any, recorder: Recorder) -> list[Any]:
    if not torch.distributed.is_available():
        return []
    return [_once_made(recorder, torch.nn.parallel.DistributedDataParallel, recorder.ddp_made)]


def _data_parallel(torch: Any, recorder: Recorder) -> list[Any]:
    return [_once_made(recorder, torch.nn.DataParallel, recorder.precision.data_parallel)]


def _tables(torch: Any, recorder: Recorder) -> list[Any]:
    return [_once_made(recorder, kind, recorder.table_made) for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag)]


def _nothing(_: Any) -> None:
    """An `end` for calls of which only the beginning is recorded."""


def _evaluation(torch: Any, recorder: Recorder) -> list[Any]:
    module, evaluations = torch.nn.Module, recorder.evaluations

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recorder.active:
            recorder.evaluation_begins(args[0])

    def to_train(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
        return True if recorder.active and (args[1] if len(args) > 1 else kwargs.get("mode", True)) else None

    original = module.train
    marked = _around(recorder, original, to_train, recorder.evaluation_ends, raised_too=False)

    @wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        # it calls itself for each submodule, and `eval` calls it, too: only the call for the evaluated model is marked
        model = evaluations.model
        try:
            if model is not None and args and model() is args[0]:
                return marked(*args, **kwargs)
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    module.eval, module.train = _around(recorder, module.eval, begin, _nothing), train
    return [module.eval, train]


def _saving(recorder: Recorder, original: Callable[..., Any]) -> Any:
    whole = original.__module__ == "torch.serialization"  # writes whole storages, other libraries the tensors alone

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        saved, file = (args[n] if len(args) > n else kwargs.get(name) for n, name in enumerate(("obj", "f")))
        return recorder.save_begin(file, saved if whole else None) if recorder.active else None

    return _around(recorder, original, begin, recorder.save_end)


def _save(torch: Any, recorder: Recorder) -> list[Any]:
    torch.save = torch.serialization.save = _saving(recorder, torch.save)
    return [torch.save]


def save_of_library(recorder: Recorder, module: str, name: str) -> None:
    """Called after the import of a library with a function that writes checkpoints."""
    owner: Any = sys.modules[module]
    setattr(owner, name, _saving(recorder, getattr(owner, name)))


class _BuiltIn:
    """Replaces a builtin function. A Python function would bind as a class attribute and be pickled under another name."""

    def __init__(self, original: Any, call: Callable[..., Any], module: str) -> None:
        self._original, self._call = original, call
        self.__module__, self.__doc__ = module, original.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return str(self._original.__name__)


def _fsync(torch: Any, recorder: Recorder) -> list[Any]:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return recorder.fsync_begin() if recorder.active else None

    call = _around(recorder, os.fsync, begin, recorder.fsync_end)
    os.fsync = _BuiltIn(os.fsync, call, "os")
    return [call, _BuiltIn]


def _threads(torch: Any, recorder: Recorder) -> list[Any]:
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args if recorder.active and recorder.worker is None else None

    call = _around(
        recorder, torch.set_num_threads, begin, lambda args: threads_are_set(recorder.facts, args), raised_too=False
    )
    torch.set_num_threads = _BuiltIn(torch.set_num_threads, call, "torch")
    return [call, _BuiltIn]


def _collector(torch: Any, recorder: Recorder) -> list[Any]:
    recorder.garbage.listen()
    return []


def _graphs(torch: Any, recorder: Recorder) -> list[Any]:
    from .step_graphs import mark_replays  # which uses this module

    return [*watch(torch, recorder.captures, recorder.failed), *mark_replays(torch, recorder)]
