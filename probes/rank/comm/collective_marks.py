"""Collectives that the job calls from Python: their number, bytes, blocking time and callers, and the current one.

DistributedDataParallel issues its own all-reduces in C++, so a plain step runs none of this code. Manual averaging, synchronised batch
norm, FSDP, ZeRO, metrics and barriers do. DDP's broadcasts of buffers are timed as well; they are no calls of the job's, so only the
blocking time and their site show them. Functional collectives are not wrapped, and while dynamo traces a wrapper acts as the original.
A call is counted on entry, so the ring's header shows the collective in which a rank hangs: kind, number and group.
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, KIND_COLLECTIVES, PHASE_MASK
from ..patches.wrappers import quietly
from ..ring import PHASE
from ..steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP, OPTIMIZER
from .collective_callers import BUFFERS, NORM, described
from .flight_watch import FlightWatch, read_dumps, read_times, training_stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ...documents.collective_documents import TimedCollectives
    from ...documents.rank_documents import CollectiveSite, DdpFacts
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
_WAIT = -1
_BROADCAST = COLLECTIVE_KINDS.index("broadcast")
_UNTIMED: TimedCollectives = {}
SITES_MAX = 64
_GROUPS_MAX = 256  # with more, destroyed groups are dropped, then all groups; their call counts restart
# Indices of the header's words from COLLECTIVE_OFFSET on
_BEGUN, _KIND, _GROUP, _SIZE, _SINCE = range(COLLECTIVE_OFFSET // 8, COLLECTIVE_OFFSET // 8 + 5)


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
            wrappers[original] = _wrap(recorder, collectives, original, COLLECTIVE_KINDS.index(kind))
    _replace(wrappers)
    work = module.Work
    work.wait = _wrap_wait(recorder, collectives, work.wait)
    model = recorder.torch.nn.parallel.DistributedDataParallel
    model._distributed_broadcast_coalesced = _wrap_buffers(
        recorder, collectives, model._distributed_broadcast_coalesced
    )
    replaced = [*wrappers.values(), work.wait, model._distributed_broadcast_coalesced]
    event = getattr(getattr(recorder.torch, "cuda", None), "Event", None)
    if event is not None:
        event.wait = _wrap_event(recorder, collectives, event.wait)
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


def _wrap(recorder: Recorder, collectives: Collectives, original: Any, kind: int) -> Any:
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


def _wrap_wait(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    inside = collectives.inside

    # pybind recognises a call from an override by this name and first argument, and then calls its own method.
    @wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, watched = None, recorder.active and get_ident() not in inside
        try:
            if watched:
                call = quietly(recorder, collectives.begin, _WAIT, (), None)
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


def _wrap_event(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    """Wraps `torch.cuda.Event.wait`, by which a stream waits for collectives on another one (sharded parameters, DeepSpeed)."""
    is_compiling = recorder.torch.compiler.is_dynamo_compiling

    @wraps(original)
    def wait(self: Any, stream: Any = None) -> Any:
        if is_compiling() or not collectives.times_waits():
            return original(self, stream)
        meeting = quietly(recorder, collectives.meeting_begins, stream)
        try:
            return original(self, stream)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            quietly(recorder, collectives.meeting_ends, meeting)

    return wait


def _wrap_buffers(recorder: Recorder, collectives: Collectives, original: Any) -> Any:
    is_compiling = recorder.torch.compiler.is_dynamo_compiling
    inside = collectives.inside

    @wraps(original)
    def broadcast(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        call, watched = None, recorder.active and collectives.buffers and get_ident() not in inside
        meeting = quietly(recorder, collectives.meeting_begins) if collectives.times_buffers() else None
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
            if meeting is not None:
                quietly(recorder, collectives.meeting_ends, meeting)
        if watched:
            quietly(recorder, collectives.end, call, None)
        return result

    return broadcast


class Group:
    """A process group and its number of calls. Its name identifies it on all ranks."""

    __slots__ = ("backend", "begun", "name", "of", "size")

    def __init__(self, of: Callable[[], Any], name: str, size: int, backend: str) -> None:
        self.of = of  # a weak reference: groups are destroyed and recreated, possibly at the same address
        self.name = int.from_bytes(name.encode("utf-8", "replace")[:7], "big")
        self.size = size
        self.backend = backend
        self.begun = 0


class Call:
    """A call in progress."""

    __slots__ = ("began", "device", "group", "kind", "meeting", "phase", "sent", "site", "thread")

    def __init__(self, kind: int, thread: int, group: Group | None, site: CollectiveSite) -> None:
        self.kind = kind
        self.thread = thread
        self.group = group
        self.site = site
        self.sent = 0
        self.device = False
        self.phase = 0
        self.began = 0
        self.meeting: Any = None  # the event before it on the compute stream


class Collectives:
    """Sums over the current step. Any thread may add calls (on CUDA autograd has its own thread); only the training thread writes them."""

    def __init__(self, recorder: Recorder, module: Any) -> None:
        self._recorder = recorder
        self._module = module
        self._tensor: Any = recorder.torch.Tensor
        self._process_group: Any = module.ProcessGroup
        self._no_member: Any = getattr(module.GroupMember, "NON_GROUP_MEMBER", self)
        self._no_function: Any = recorder.torch._C.DisableTorchFunction
        self.inside: set[int] = set()  # threads inside a call; nested calls are part of the outer one
        self._on_step = self._close_step
        self._flight = FlightWatch(
            recorder,
            lambda: recorder.captures.outside(partial(read_dumps, recorder.torch), []),
            partial(training_stack, recorder),
            lambda: recorder.captures.outside(partial(read_times, recorder.torch), _UNTIMED),
        )
        self.forget()

    def forget(self) -> None:
        """Resets in a new process."""
        self._flight.forget()
        self.inside.clear()
        self._groups: dict[int, Group] = {}
        self._sites: dict[Any, CollectiveSite] = {}
        self._described: list[CollectiveSite] = []
        # DistributedDataParallel modules that broadcast buffers of the CPU: their group, site and bytes
        self.buffers: weakref.WeakKeyDictionary[Any, tuple[Group, CollectiveSite, int]] = weakref.WeakKeyDictionary()
        # the last asynchronous call was on GPU tensors, so a wait for it does not block the host
        self._on_device = False
        self.meets = False  # the latest step with calls had some on GPU tensors
        self._clear()

    def _clear(self) -> None:
        self._calls = self._bytes = self._bus_bytes = self._call_ns = self._waits = self._wait_ns = 0
        self._asynchronous = self._device_calls = self._norm_calls = self._norm_bytes = self._norm_ns = 0
        self._size = 0
        self._held = [0, 0, 0, 0, 0]  # ns, by `_place`

    def joins(self, world_size: int) -> None:
        """Called when this process becomes a rank. Each writing of the facts includes the counts so far."""
        self._recorder.facts.values["collectives"] = self._described
        if world_size > 1:
            self._flight.start()

    def leaves(self) -> None:
        """Called at interpreter shutdown."""
        self._flight.stop()

    def begin(self, kind: int, given: tuple[Any, ...], frame: FrameType | None) -> Call | None:
        """Begins a call. None if this rank is not in the group: then torch only warns."""
        if any(item is self._no_member for item in given):
            return None
        self._flush_buffer()
        group = None if kind == _WAIT else self._group(given)
        call = Call(kind, get_ident(), group, _UNKNOWN_SITE if frame is None else self._site(frame, kind, group))
        with self._no_function():  # calls no methods of the job's subclasses
            for item in given:
                self._weigh(call, item)
        return self._begun(call)

    def begin_buffers(self, model: Any) -> Call | None:
        """Begins a broadcast of the model's buffers. None if the model is not registered."""
        known = self.buffers.get(model)
        if known is None:
            return None
        self._flush_buffer()
        group, site, size = known
        call = Call(_BROADCAST, get_ident(), group, site)
        call.sent = size
        return self._begun(call)

    def broadcasts(self, model: Any, options: DdpFacts) -> None:
        """Registers a new DistributedDataParallel. On other devices than the CPU its broadcasts only queue work."""
        buffers = model.modules_buffers if options.get("synced_buffers") else ()
        if not buffers or len(self.buffers) >= SITES_MAX or any(buffer.device.type != "cpu" for buffer in buffers):
            return
        group = self._group((model.process_group,))
        if group.size < 2:
            return
        site: CollectiveSite = {
            "file": options["file"],
            "line": options["line"],
            "library": BUFFERS,
            "kind": COLLECTIVE_KINDS[_BROADCAST],
            "backend": group.backend,
            "group_size": group.size,
            "calls": 0,
            "bytes": 0,
            "ns": 0,
        }
        self.buffers[model] = group, site, options["buffer_bytes"]
        self._described.append(site)

    def _flush_buffer(self) -> None:
        """Processes this thread's buffered marks: they are older than the call that begins."""
        recorder = self._recorder
        if recorder.buffer.on and recorder.account.thread == get_ident():
            recorder.own_account()

    def _begun(self, call: Call) -> Call:
        account, group, kind = self._recorder.account, call.group, call.kind
        ring = None if account is None else account.ring
        self.inside.add(call.thread)
        if group is not None:
            group.begun += 1
        call.began = perf_counter_ns()
        if ring is not None:
            words = ring.words
            call.phase = words[PHASE] & PHASE_MASK
            if group is not None:
                words[_BEGUN], words[_KIND], words[_GROUP], words[_SIZE] = group.begun, kind, group.name, group.size
            words[_SINCE] = call.began
        if self._meets_in(call):
            call.meeting = self.meeting_begins()
        return call

    # -- waits of the compute stream -----------------------------------------------------------------------------------------

    def _meets_in(self, call: Call) -> bool:
        gpu = self._recorder.gpu
        if gpu is None or not gpu.meets:
            return False
        return (
            self._on_device
            if call.kind == _WAIT
            else call.device and call.group is not None and call.group.backend != "gloo"
        )

    def times_buffers(self) -> bool:
        """True if the compute stream's wait for buffers that DDP sends is to be timed."""
        gpu = self._recorder.gpu
        return gpu is not None and gpu.meets and self._recorder.active

    def times_waits(self) -> bool:
        """True if a stream may now wait for collectives of this step, and the wait is to be timed."""
        gpu = self._recorder.gpu
        timed = gpu is not None and gpu.meets and self._recorder.active
        return timed and self._device_calls > 0 and get_ident() not in self.inside

    def meeting_begins(self, stream: Any = None) -> tuple[Any, int, int] | None:
        """Records an event before the compute stream waits. Returns (event, phase, ns it took); None outside the step's passes."""
        recorder = self._recorder
        account, gpu = recorder.account, recorder.gpu
        if account is None or account.ring is None or gpu is None:
            return None
        began, phase = perf_counter_ns(), account.ring.words[PHASE] & PHASE_MASK
        place = _MET.get(FORWARD if phase == GAP and not account.fetched else phase)
        # on CUDA the backward pass runs in autograd's thread while the training thread waits
        if place is None or not (phase == BACKWARD or get_ident() == account.thread):
            return None
        event = gpu.meeting_begins(stream)
        return None if event is None else (event, place, perf_counter_ns() - began)

    def meeting_ends(self, meeting: tuple[Any, int, int] | None) -> None:
        recorder = self._recorder
        account, gpu = recorder.account, recorder.gpu
        if meeting is None or account is None or gpu is None:
            return
        began = perf_counter_ns()
        event, place, took = meeting
        gpu.meeting_ends(event, place)
        account.self_ns += took + perf_counter_ns() - began

    def end(self, call: Call | None, result: Any) -> None:
        self.inside.discard(get_ident())
        account = self._recorder.account
        if account is None or account.ring is None:
            return
        account.ring.words[_SINCE] = 0
        if call is None or call.phase == 0:
            return  # before the first step
        if call.meeting is not None:
            self.meeting_ends(call.meeting)
        took = perf_counter_ns() - call.began
        if call.kind == _WAIT:
            self._waits += 1
            self._wait_ns += took
            held = not self._on_device
        else:
            held = self._count(call, result, took)
        # on CUDA the backward pass runs in autograd's thread while the training thread waits
        if held and (call.thread == account.thread or call.phase == BACKWARD):
            # the chunk in which a model is called becomes the forward pass, if no evaluation has begun
            own = call.site["library"] == BUFFERS and call.phase != EVALUATION
            self._held[_place(FORWARD if own else call.phase)] += took
        if account.on_step is not self._on_step:
            account.on_step = self._on_step

    def _count(self, call: Call, result: Any, took: int) -> bool:
        """Counts a call. True if the call blocked its caller until it was done."""
        group: Any = call.group
        site = call.site
        site["calls"] += 1
        site["bytes"] += call.sent
        site["ns"] += took
        if site["library"] == BUFFERS:
            return True
        self._calls += 1
        self._bytes += call.sent
        self._bus_bytes += bus_bytes(call.kind, call.sent, group.size)
        self._call_ns += took
        self._size = max(self._size, group.size)
        queued = call.device and group.backend != "gloo"  # the call returns once it is queued on the stream
        self._device_calls += queued
        if result is not None and hasattr(result, "wait"):
            self._asynchronous += 1
            self._on_device = queued
        if site["library"] == NORM:
            self._norm_calls += 1
            self._norm_bytes += call.sent
            self._norm_ns += took
        return not queued

    def _close_step(self, step: int) -> None:
        """Replaces the usual step-end callback: writes the step's calls."""
        recorder = self._recorder
        account = recorder.account
        values = (
            step - 1, self._calls, self._bytes, self._bus_bytes, self._call_ns, self._waits, self._wait_ns, self._asynchronous,
            self._device_calls, *self._held, self._norm_calls, self._norm_bytes, self._norm_ns, self._size,
        )  # fmt: skip
        self.meets = self._device_calls > 0
        self._clear()
        account.on_step = recorder._stepped
        account.ring.write(KIND_COLLECTIVES, 0, values)
        recorder._stepped(step)
        if recorder.buffer.on:  # the next step probably has such calls, too
            recorder.buffer.flush_into(account)

    def _weigh(self, call: Call, item: Any) -> None:
        """Updates the bytes that a call moves: the size of its largest argument."""
        if isinstance(item, self._tensor):
            size = item.numel() * item.element_size()
            call.device = call.device or item.is_cuda
        elif isinstance(item, (list, tuple)) and item and isinstance(item[0], self._tensor):
            size = sum(part.numel() * part.element_size() for part in item)
            call.device = call.device or item[0].is_cuda
        else:
            return
        if type(size) is int:  # not a symbolic size of a tracing export, which a comparison would specialise
            call.sent = max(call.sent, size)

    def _group(self, given: tuple[Any, ...]) -> Group:
        group = next((item for item in given if isinstance(item, self._process_group)), None)
        if group is None:
            group = self._module.GroupMember.WORLD
        known = self._groups.get(id(group))
        if known is None or known.of() is not group:
            if group is None:
                return Group(_no_group, "", 0, "")  # no group yet: torch raises its own error
            if len(self._groups) >= _GROUPS_MAX:
                self._groups = {n: kept for n, kept in self._groups.copy().items() if kept.of() is not None}
                if len(self._groups) >= _GROUPS_MAX:
                    self._groups = {}
            name, backend = str(getattr(group, "group_name", "")), str(self._module.get_backend(group))
            known = self._groups[id(group)] = Group(weakref.ref(group), name, group.size(), backend)
        return known

    def _site(self, frame: FrameType, kind: int, group: Group | None) -> CollectiveSite:
        key = frame.f_code, frame.f_lasti, group
        site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= SITES_MAX:
                return _UNKNOWN_SITE  # finding the caller walks all frames, which is too slow at every call
            site = self._sites[key] = described(frame, kind, group)
            self._described.append(site)
        return site


_PLACES = {FORWARD: 0, BACKWARD: 1, CLIP: 2, OPTIMIZER: 2, GAP: 3}
_MET = {FORWARD: 0, BACKWARD: 1, CLIP: 2, OPTIMIZER: 2}
_UNKNOWN_SITE: CollectiveSite = {"library": "", "calls": 0, "bytes": 0, "ns": 0}


def _no_group() -> None:
    return None


def _place(phase: int) -> int:
    """Index into the blocking times: forward, backward, optimizer with clipping, gap, other (mostly evaluation)."""
    return _PLACES.get(phase, 4)


def bus_bytes(kind: int, sent: int, ranks: int) -> int:
    """Bytes that each link carries for a call on `sent` bytes: 2 (N-1)/N of them for a ring all-reduce."""
    name = COLLECTIVE_KINDS[kind]
    if ranks < 2:
        return 0
    if name == "all_reduce":
        return 2 * (ranks - 1) * sent // ranks
    return sent if name in ("broadcast", "reduce") else (ranks - 1) * sent // ranks
