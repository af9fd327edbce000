"""Marks of each step: fetches, backward passes and updates. These wrappers are the recorder's hot path.

In most steps a wrapper only adds its time to the mark buffer; otherwise the recorder processes the mark at once.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..layout import PHASE_BITS
from ..ring import PHASE, STEP
from ..steps.mark_buffer import BACKWARD, BACKWARD_END, BATCH, FETCH, OPTIMIZER, OPTIMIZER_END
from ..steps.step_phases import BACKWARD as IN_BACKWARD
from ..steps.step_phases import CLIP, FORWARD, GAP, INPUT
from ..steps.step_phases import OPTIMIZER as IN_OPTIMIZER
from .wrappers import around, count_error, once_made, quietly

if TYPE_CHECKING:
    from ..recorder import Recorder
    from ..steps.step_account import Account


def count_elements(batch: Any, tensor: Any) -> int:
    """Elements of the first tensor if the batch is a list (the default collate's result for pairs); -1 for other batches."""
    return int(batch[0].numel()) if type(batch) is list and batch and type(batch[0]) is tensor else -1


def mark_fetches(torch: Any, recorder: Recorder, base: Any) -> Any:
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
                    recorder.schedule.flush_buffer(self)
            elif recorder.active:
                token = recorder.loading.fetch_begin(self)
        except Exception:
            count_error(recorder)
        try:
            batch = original_next(self)
        except BaseException as error:
            if token is not None:
                quietly(recorder, recorder.loading.fetch_failed, token)
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
                recorder.loading.fetch_end(token, batch)
        except Exception:
            count_error(recorder)
        return batch

    base.__next__ = __next__
    return __next__


def mark_backward(torch: Any, recorder: Recorder) -> list[Any]:
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
                account = recorder.passes.backward_begin(args[0] if args else kwargs.get("tensors"), args, kwargs)
        except Exception:
            count_error(recorder)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if account is not None:
                quietly(recorder, _backward_ended, recorder, account)
            hide_frame(error)
            raise
        if account is not None:
            try:
                _backward_ended(recorder, account)
            except Exception:
                count_error(recorder)
        return result

    torch.autograd.backward = backward  # Tensor.backward calls it by this name
    register_with_jit(original, backward)
    return [backward]


def _backward_ended(recorder: Recorder, account: Account) -> None:
    """Ends a backward pass in the buffer or in the account."""
    buffer = recorder.buffer
    if not buffer.on:
        recorder.passes.backward_end(account)
        return
    if not buffer.counted_at:  # else the step is only counted
        now = perf_counter_ns()
        buffer.marks[BACKWARD_END].append(now)
        buffer.words[PHASE] = now << PHASE_BITS | CLIP
    buffer.inside_backward = False
    buffer.phase = CLIP


def register_with_jit(original: Any, wrapper: Any) -> None:
    """Registers the wrapper with TorchScript, which maps functions to operators by identity: scripted code may call it."""
    module = sys.modules.get("torch.jit._builtins")
    operators = getattr(module, "_builtin_ops", [])
    operators += [(wrapper, operator) for function, operator in operators if function is original]
    table = getattr(module, "_builtin_table", None) or {}  # None until something is scripted
    if id(original) in table:
        table[id(wrapper)] = table[id(original)]


def mark_updates(torch: Any, recorder: Recorder) -> list[Any]:
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
                recorder.passes.optimizer_begin(optimizer)
        except Exception:
            count_error(recorder)

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
                recorder.passes.optimizer_end(optimizer)
        except Exception:
            count_error(recorder)

    def made(optimizer: Any) -> None:
        recorder.passes.optimizers.made(optimizer)

    module.register_optimizer_step_pre_hook(before_step)
    module.register_optimizer_step_post_hook(after_step)
    return [before_step, after_step, once_made(recorder, module.Optimizer, made)]


def mark_scaled_updates(torch: Any, recorder: Recorder) -> list[Any]:
    scaler = torch.amp.grad_scaler.GradScaler

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # a disabled scaler only calls the optimizer
        if not recorder.active or not getattr(args[0], "_enabled", True):
            return None
        optimizer = args[1] if len(args) > 1 else kwargs["optimizer"]
        account = recorder.own_account()
        before = account.optimizers if account is not None else 0
        quietly(recorder, recorder.passes.optimizer_begin, optimizer)
        return None if account is None else (account, before, optimizer)

    def end(begun: Any) -> None:
        account, before, optimizer = begun
        # the optimizer's hooks have run inside, unless inf or nan made the scaler skip the update
        if account.optimizers == before:
            quietly(recorder, account.update_skipped)
        recorder.passes.optimizer_end(optimizer, False)

    scaler.step = around(recorder, scaler.step, begin, end)
    return [scaler.step]
