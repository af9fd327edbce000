"""Patches of torch.distributed: collectives called from Python, waits for them, and DistributedDataParallel's broadcasts of buffers.

Functional collectives are not wrapped, and while dynamo traces a wrapper acts as the original.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..layout import COLLECTIVE_KINDS
from ..patches.wrappers import quietly
from .collective_marks import WAIT, Collectives

if TYPE_CHECKING:
    from ..recorder import Recorder

MODULE = "torch.distributed.distributed_c10d"
# The module's names in all versions; the longer names are aliases of the shorter ones.
NAMES = {
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_all_gather_base": "all_gather",
    "all_gather_coalesced": "all_gather",
    "all_gather_object": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "broadcast": "broadcast",
    "broadcast_object_list": "broadcast",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "reduce": "reduce",
    "gather": "gather",
    "gather_object": "gather",
    "scatter": "scatter",
    "scatter_object_list": "scatter",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
}


def install(recorder: Recorder) -> list[Any]:
    """Wraps the collectives. Returns the wrappers. If this torch version lacks the module's parts, the facts record it."""
    try:
        return _install(recorder)
    except (AttributeError, ImportError) as error:
        recorder.facts.miss("collectives: %s" % error)
        return []


def _install(recorder: Recorder) -> list[Any]:
    module: Any = sys.modules.get(MODULE)
    if module is None or not recorder.torch.distributed.is_available():
        return []
    collectives = recorder.collectives = Collectives(recorder, module)
    os.register_at_fork(after_in_child=collectives.forget)
    wrappers = {}
    for name, kind in NAMES.items():
        original = getattr(module, name, None)
        # Deprecated functions warn with their caller's line, which must remain the job's. They call one of the others.
        if original is not None and not hasattr(original, "__deprecated__"):
            wrappers[original] = wrap(recorder, collectives, original, COLLECTIVE_KINDS.index(kind))
    _replace(wrappers)
    work = module.Work
    work.wait = wrap_wait(recorder, collectives, work.wait)
    model = recorder.torch.nn.parallel.DistributedDataParallel
    model._distributed_broadcast_coalesced = wrap_buffers(recorder, collectives, model._distributed_broadcast_coalesced)
    replaced = [*wrappers.values(), work.wait, model._distributed_broadcast_coalesced]
    event = getattr(getattr(recorder.torch, "cuda", None), "Event", None)
    if event is not None:
        event.wait = wrap_event(recorder, collectives, event.wait)
        replaced.append(event.wait)
    return replaced


def _replace(wrappers: dict[Any, Any]) -> None:
    """Replaces the functions in all modules of torch.distributed (some import them by name) and in dynamo's table, where they are keys."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed") and module is not None:
            for attribute, value in list(vars(module).items()):
                if callable(value) and _known(wrappers, value) is not None:
                    setattr(module, attribute, wrappers[value])
    functional = sys.modules.get("torch.distributed._functional_collectives")
    remaps = getattr(functional, "traceable_collective_remaps", None)
    if isinstance(remaps, dict):
        remaps.update({wrappers[original]: new for original, new in list(remaps.items()) if original in wrappers})


def _known(wrappers: dict[Any, Any], value: Any) -> Any:
    try:
        return wrappers.get(value)
    except TypeError:
        return None  # not hashable


def wrap(recorder: Recorder, collectives: Collectives, original: Any, kind: int) -> Any:
    # dynamo sees True; cheap for all other callers
    is_compiling = recorder.torch.compiler.is_dynamo_compiling
    inside = collectives.inside

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        call, watched = None, recorder.active and get_ident() not in inside
        try:
            if watched:
                # there is no caller's frame if autograd's own thread calls this directly as a hook
                call = quietly(recorder, collectives.begin, kind, (*args, *kwargs.values()), sys._getframe().f_back)
            result = original(*args, **kwargs)
        except BaseException as error:
            if watched:
                quietly(recorder, collectives.end, call, None)
            hide_frame(error)
            raise
        if watched:
            quietly(recorder, collectives.end, call, result)
        return result

    return wrapper


def wrap_wait(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    inside = collectives.inside

    # pybind recognises a call from an override by this name and first argument, and then calls its own method.
    @wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, watched = None, recorder.active and get_ident() not in inside
        try:
            if watched:
                call = quietly(recorder, collectives.begin, WAIT, (), None)
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if watched:
                quietly(recorder, collectives.end, call, None)
            hide_frame(error)
            raise
        if watched:
            quietly(recorder, collectives.end, call, None)
        return result

    return wait


def wrap_event(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    """Wraps `torch.cuda.Event.wait`, by which a stream waits for collectives on another one (sharded parameters, DeepSpeed)."""
    is_compiling, stream_waits = recorder.torch.compiler.is_dynamo_compiling, collectives.stream_waits

    @wraps(original)
    def wait_for_event(self: Any, stream: Any = None) -> Any:
        if is_compiling() or not collectives.times_waits():
            return original(self, stream)
        wait = quietly(recorder, stream_waits.begin, stream)
        try:
            return original(self, stream)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            quietly(recorder, stream_waits.end, wait)

    return wait_for_event


def wrap_buffers(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    is_compiling = recorder.torch.compiler.is_dynamo_compiling
    inside, stream_waits = collectives.inside, collectives.stream_waits

    @wraps(original)
    def broadcast(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        call, watched = None, recorder.active and collectives.buffers and get_ident() not in inside
        wait = quietly(recorder, stream_waits.begin) if stream_waits.timed() else None
        try:
            if watched:
                call = quietly(recorder, collectives.begin_buffers, self)
            result = original(self, *args, **kwargs)
        except BaseException as error:
            if watched:
                quietly(recorder, collectives.end, call, None)
            hide_frame(error)
            raise
        finally:
            if wait is not None:
                quietly(recorder, stream_waits.end, wait)
        if watched:
            quietly(recorder, collectives.end, call, None)
        return result

    return broadcast
