"""Time on the GPU: a pooled CUDA event at each mark, read after `query()`. Never synchronises; pauses while any thread captures a graph.

If Python calls collectives, some steps also have events around each wait of the compute stream for one.
Events are only on the rank's training device, which may not be the current device: an event on another one would create a context there.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import KIND_GPU_STEP
from ..signal_exceptions import reraise_signal_exception
from .graph_captures import Captures

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ..ring import Ring

    class Event(Protocol):
        """The part of `torch.cuda.Event` that is used."""

        def record(self, stream: Any) -> None: ...
        def query(self) -> bool: ...
        def elapsed_time(self, end_event: Event) -> float: ...

    Mark = tuple[Event, str]
    Wait = tuple[Event, Event, int]  # event before it, event after it, phase

# The marks of a step with events cannot be buffered, which costs some 150 us more. If the recorder's share of the time exceeds this, only
# blocks of steps have events, with pauses between them. The first step of a block lacks the time before its first event, the last one the
# time after its last event.
_SHARE = 0.001
_BLOCK_STEPS = 12  # steps
_FIRST_STEPS = 5 * _BLOCK_STEPS  # all these steps have events, to cover short runs
_REST_MAX = 32 * _BLOCK_STEPS
_MARKS_MAX = 2_000  # per step (500 micro-batches); with more the step may never end
_UNREAD_MAX = 20  # consecutive steps with unreadable events before giving up
_OUTSTANDING_MAX = 64  # steps with pending events; further steps are dropped
_MEMORY_EVERY_NS = 1_000_000_000  # reading allocator statistics costs some 50 us
_PHASES = ("input_wait", "forward", "backward", "optimizer", "gap")
# Waits for collectives take two events each, and a model may have hundreds: about one step in four has them, the same ones on all
# ranks. They are scattered, since loader workers, log lines and accumulation make every n-th step longer.
_WAITS_OUT_OF_256 = 64
_SCATTER = 0x9E3779B1  # Knuth's multiplicative hash
_WAITS_MAX = 512  # per step; with more the step's waits are unknown
_WAIT_PHASES = 3  # forward, backward, optimizer with clipping
_UNTIMED_WAITS = (-1,) * (2 + _WAIT_PHASES)


class GpuTimes:
    """Events on the compute stream of `device`. `cuda` is `torch.cuda` or a substitute with the same interface."""

    def __init__(
        self, cuda: Any, device: int, captures: Captures | None = None, clock: Callable[[], int] = perf_counter_ns
    ) -> None:
        self._cuda = cuda
        self._captures = captures or Captures()
        self._device = device
        self._clock = clock
        self._stream = cuda.current_stream(device)
        self._free: list[Event] = []
        self._marks: list[Mark] = []  # (event, phase that ends here) of the running step
        self._waits: list[Wait] = []  # (event before, event after, phase) of the running step's waits for collectives
        self._marked = 0  # how many of them came before the latest mark
        self.times_waits = False  # this step's waits for collectives are timed
        self._last: Event | None = None  # the event that ended the previous step and starts this one
        self._pending: deque[tuple[int, Event, list[Mark], list[Wait] | None]] = deque()
        self._memory_at = 0
        self._block = (0, 0, 0)  # the block's first step, that step's start, and the recorder's cost until then
        self.on = True
        self.next_step = 0  # the next step with events while they are off
        # unreported steps: too many marks, too many pending steps, or unreadable events
        self.dropped = 0
        self._unread = 0  # consecutive steps with unreadable events

    def turn(self, step: int, now: int, self_ns: int) -> bool:
        """Starts a step at `now`. True if it has events. `self_ns`: the recorder's total cost."""
        begun, since, taken = self._block
        if self.on and step - begun < _BLOCK_STEPS:
            return True
        if self.on:
            rest = int((step - begun) * ((self_ns - taken) / max(now - since, 1) / _SHARE - 1))
            if step >= _FIRST_STEPS and rest >= _BLOCK_STEPS // 2:
                self.on, self._last, self.next_step = False, None, step + min(rest, _REST_MAX)
        else:
            self.on = step >= self.next_step
        if self.on:
            self._block = step, now, self_ns
        return self.on

    def choose_waits(self, step: int) -> None:
        """Decides at the start of a step whether its waits for collectives are timed."""
        self.times_waits = self.on and (step * _SCATTER & 0xFFFFFFFF) >> 24 < _WAITS_OUT_OF_256

    def wait_begins(self, stream: Any = None) -> Event | None:
        """Records an event before the compute stream waits for a collective. None if `stream`, by default the current one, is another."""
        if stream is None:
            stream = self._cuda.current_stream(self._device)
        if stream != self._stream or len(self._waits) > _WAITS_MAX or self._capturing():
            return None
        return self._recorded()

    def wait_ends(self, before: Event, phase: int) -> None:
        """Records the event after the wait. `phase`: 0 forward, 1 backward, 2 optimizer."""
        if self._capturing():
            self._free.append(before)
        else:
            self._waits.append((before, self._recorded(), phase))

    def _recorded(self) -> Event:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def mark(self, ended: str, *, fetches: bool = False) -> None:
        """Records an event. The phase `ended` gets the stream's time since the last mark. `fetches`: a batch is requested now."""
        if not self.on or self._capturing():
            return
        # the job may fetch on another stream; querying the stream takes as long as recording
        if ended == "forward" and not fetches:
            self._stream = self._cuda.current_stream(self._device)
        if len(self._marks) >= _MARKS_MAX:
            self.dropped += self._last is not None
            self._free += [event for event, _ in self._marks]
            self._marks.clear()
            self._last, self.times_waits = None, False
        self._marks.append((self._recorded(), ended))
        self._marked = len(self._waits)

    def close(self, step: int, ring: Ring) -> None:
        """Ends the step: queues its events and reads completed ones. Queries none during a capture, since that would break it."""
        marks, self._marks = self._marks, []
        recorded = self._close_waits()
        if self._capturing():
            self._last = None  # part of this and the next step's work is not on the stream
            return
        if marks:
            before, self._last = self._last, marks[-1][0]
            pending = len(self._pending)
            if before is not None and pending < _OUTSTANDING_MAX and pending * len(marks) < 4 * _MARKS_MAX:
                self._pending.append((step, before, marks, recorded))
            else:
                self.dropped += before is not None
        while self._pending and self._pending[0][2][-1][0].query():
            step, before, marks, recorded = self._pending.popleft()
            try:
                spent = self._read(before, marks)
                waits = _UNTIMED_WAITS if recorded is None else self._read_waits(recorded)
            except Exception:  # the stream changed within the step: events before its last one may be pending
                reraise_signal_exception()
                self.dropped += 1
                self._unread += 1
                if self._unread >= _UNREAD_MAX:
                    raise
            else:
                self._unread = 0
                ring.write(KIND_GPU_STEP, 0, (step, *(spent[name] for name in _PHASES), *self._memory(), *waits))

    def _close_waits(self) -> list[Wait] | None:
        """The step's waits before its last mark, whose event passes after theirs. None if not all were timed."""
        recorded, marked, timed = self._waits, self._marked, self.times_waits
        self._waits, self._marked, self.times_waits = [], 0, False
        known = recorded[:marked] if timed and len(recorded) <= _WAITS_MAX else None
        for before, after, _ in recorded[len(known or ()) :]:
            self._free += (before, after)
        return known

    def _capturing(self) -> bool:
        """True during a capture that Python started in any thread, or any code on this thread's stream."""
        return bool(self._captures.under_way or self._cuda.is_current_stream_capturing())

    def _read(self, before: Event, marks: list[Mark]) -> dict[str, int]:
        """GPU time in ns by phase."""
        spent = dict.fromkeys(_PHASES, 0)
        for event, phase in marks:
            spent[phase] += int(before.elapsed_time(event) * 1e6)  # ms to ns
            self._free.append(before)
            before = event
        return spent

    def _read_waits(self, recorded: list[Wait]) -> tuple[int, ...]:
        """The number of waits, their ns by phase, and the shortest one of the forward pass."""
        waits = [(phase, int(before.elapsed_time(after) * 1e6)) for before, after, phase in recorded]
        for before, after, _ in recorded:
            self._free += (before, after)
        spent = (sum(ns for of, ns in waits if of == phase) for phase in range(_WAIT_PHASES))
        return (len(waits), *spent, min((ns for of, ns in waits if of == 0), default=-1))

    def _memory(self) -> tuple[int, int, int, int]:
        """Allocated, reserved and peak bytes and allocator retries, read once a second, else -1. Never resets the user's peak."""
        now = self._clock()
        if now - self._memory_at < _MEMORY_EVERY_NS:
            return -1, -1, -1, -1
        self._memory_at = now
        try:
            stats = self._cuda.memory_stats(self._device)
        except (
            Exception
        ):  # an allocator without statistics (cudaMallocAsync of old versions, a custom one): events go on
            reraise_signal_exception()
            return -1, -1, -1, -1
        return (
            stats.get("allocated_bytes.all.current", -1),
            stats.get("reserved_bytes.all.current", -1),
            stats.get("allocated_bytes.all.peak", -1),
            stats.get("num_alloc_retries", -1),
        )
