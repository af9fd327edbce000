"""Collectives that the job calls from Python: their number, bytes, blocking time and callers, and the current one.

DistributedDataParallel issues its own all-reduces in C++, so a plain step runs none of this code. Manual averaging, synchronised batch
norm, FSDP, ZeRO, metrics and barriers do. DDP's broadcasts of buffers are timed as well; they are no calls of the job's, so only the
blocking time and their site show them.
A call is counted on entry, so the ring's header shows the collective in which a rank hangs: kind, number and group.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, KIND_COLLECTIVES, PHASE_MASK
from ..ring import PHASE
from ..steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP, OPTIMIZER
from .collective_callers import BUFFERS, NORM, PLACES, callers_line, described
from .flight_watch import FlightWatch, read_dumps, read_times, training_stack
from .process_groups import Group, Groups, bus_bytes
from .stream_waits import StreamWaits

if TYPE_CHECKING:
    from types import FrameType

    from ...documents.collective_documents import CollectiveSite, DdpFacts, TimedCollectives
    from ..recorder import Recorder

WAIT = -1  # kind of a call that waits for an asynchronous one
_BROADCAST = COLLECTIVE_KINDS.index("broadcast")
_UNTIMED: TimedCollectives = {}
SITES_MAX = 64
# Indices of the header's words from COLLECTIVE_OFFSET on
_BEGUN, _KIND, _GROUP, _SIZE, _SINCE = range(COLLECTIVE_OFFSET // 8, COLLECTIVE_OFFSET // 8 + 5)


class Call:
    """A call in progress."""

    __slots__ = ("began", "device", "group", "kind", "phase", "sent", "site", "stream_wait", "thread")

    def __init__(self, kind: int, thread: int, group: Group | None, site: CollectiveSite) -> None:
        self.kind = kind
        self.thread = thread
        self.group = group
        self.site = site
        self.sent = 0
        self.device = False
        self.phase = 0
        self.began = 0
        self.stream_wait: Any = None  # from `StreamWaits.begin`


class Collectives:
    """Sums over the current step. Any thread may add calls (on CUDA autograd has its own thread); only the training thread writes them."""

    def __init__(self, recorder: Recorder, module: Any) -> None:
        self._recorder = recorder
        self._tensor: Any = recorder.torch.Tensor
        self._no_member: Any = getattr(module.GroupMember, "NON_GROUP_MEMBER", self)
        self._no_function: Any = recorder.torch._C.DisableTorchFunction
        self.inside: set[int] = set()  # threads inside a call; nested calls are part of the outer one
        self._on_step = self._close_step
        self._groups = Groups(module)
        self.stream_waits = StreamWaits(recorder)
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
        self._groups.forget()
        self._sites: dict[Any, CollectiveSite] = {}
        self._described: list[CollectiveSite] = []
        # DistributedDataParallel modules that broadcast buffers of the CPU: their group, site and bytes
        self.buffers: weakref.WeakKeyDictionary[Any, tuple[Group, CollectiveSite, int]] = weakref.WeakKeyDictionary()
        # the last asynchronous call was on GPU tensors, so a wait for it does not block the host
        self._on_device = False
        self.on_gpu = False  # the latest step with calls had some on GPU tensors
        self._clear()

    def _clear(self) -> None:
        self._calls = self._bytes = self._bus_bytes = self._call_ns = self._waits = self._wait_ns = 0
        self._asynchronous = self._device_calls = self._norm_calls = self._norm_bytes = self._norm_ns = 0
        self._size = 0
        self._held = [0] * PLACES  # ns, by `_place`

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
        group = None if kind == WAIT else self._groups.of(given)
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
        group = self._groups.of((model.process_group,))
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
            "held_ns": [0] * PLACES,
            "in_module": True,
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
        if self._waits_on_stream(call):
            call.stream_wait = self.stream_waits.begin()
        return call

    def _waits_on_stream(self, call: Call) -> bool:
        """True if the compute stream waits for this call, and the wait is to be timed."""
        gpu = self._recorder.gpu
        if gpu is None or not gpu.times_waits:
            return False
        return (
            self._on_device
            if call.kind == WAIT
            else call.device and call.group is not None and call.group.backend != "gloo"
        )

    def times_waits(self) -> bool:
        """True if a stream may now wait for collectives of this step, and the wait is to be timed."""
        return self.stream_waits.timed() and self._device_calls > 0 and get_ident() not in self.inside

    def end(self, call: Call | None, result: Any) -> None:
        self.inside.discard(get_ident())
        account = self._recorder.account
        if account is None or account.ring is None:
            return
        account.ring.words[_SINCE] = 0
        if call is None or call.phase == 0:
            return  # before the first step
        if call.stream_wait is not None:
            self.stream_waits.end(call.stream_wait)
        took = perf_counter_ns() - call.began
        if call.kind == WAIT:
            self._waits += 1
            self._wait_ns += took
            held = not self._on_device
        else:
            held = self._count(call, result, took)
        # on CUDA the backward pass runs in autograd's thread while the training thread waits
        if held and (call.thread == account.thread or call.phase == BACKWARD):
            # the chunk in which a model is called becomes the forward pass, if no evaluation has begun
            own = call.site["library"] == BUFFERS and call.phase != EVALUATION
            place = _place(FORWARD if own else call.phase)
            self._held[place] += took
            call.site["held_ns"][place] += took
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
        self.on_gpu = self._device_calls > 0
        self._clear()
        account.on_step = recorder.schedule.stepped
        account.ring.write(KIND_COLLECTIVES, 0, values)
        recorder.schedule.stepped(step)
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

    def _site(self, frame: FrameType, kind: int, group: Group | None) -> CollectiveSite:
        key: tuple[Any, ...] = frame.f_code, frame.f_lasti, group
        site = self._sites.get(key)
        if site is not None and site["for_metrics"]:  # called from several lines of the job
            key = (*key, *callers_line(frame))
            site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= SITES_MAX:
                return _UNKNOWN_SITE  # finding the caller walks all frames, which is too slow at every call
            site = self._sites[key] = described(frame, kind, group)
            if site["for_metrics"]:
                first_line = (*key, *callers_line(frame))
                self._sites[first_line] = site
            self._described.append(site)
        return site


_PLACES = {FORWARD: 0, BACKWARD: 1, CLIP: 2, OPTIMIZER: 2, GAP: 3}
_UNKNOWN_SITE: CollectiveSite = {"library": "", "calls": 0, "bytes": 0, "ns": 0, "held_ns": [0] * PLACES}


def _place(phase: int) -> int:
    """Index into the blocking times: forward, backward, optimizer with clipping, gap, other (mostly evaluation)."""
    return _PLACES.get(phase, 4)
