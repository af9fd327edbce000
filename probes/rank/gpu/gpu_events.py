"""Time on the GPU: a pooled CUDA event at each mark, read later by `query()`. Never a synchronise, none while any thread captures a graph.

Only on the device that the rank trains on, which need not be the current one: an event on another would make a context there.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..layout import KIND_GPU_STEP
from ..wall import let_pass
from .graph_captures import Captures

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ..ring import Ring

    class Event(Protocol):
        """What is asked of a `torch.cuda.Event`."""

        def record(self, stream: Any) -> None: ...
        def query(self) -> bool: ...
        def elapsed_time(self, end_event: Event) -> float: ...

    Mark = tuple[Event, str]

# The marks of a step with events cannot be noted on the tape: it costs some 150 us more than one without. Where the recorder takes more
# than this share of the time for them, a block of steps has them now and then: of its first step the begin is not known, and of its last
# what follows.
_SHARE = 0.001
_BLOCK = 12  # steps
_FIRST = 5 * _BLOCK  # steps that all have them: a short run is to be understood, too
_REST_MAX = 32 * _BLOCK
_MARKS_MAX = 2_000  # of one step, 500 micro-batches: beyond it nothing may ever end the step
_UNREAD_MAX = 20  # steps in a row whose events could not be read: then none can
_OUTSTANDING_MAX = 64  # steps whose events are still in the queue; beyond it a step goes without
_MEMORY_EVERY_NS = 1_000_000_000  # allocator statistics cost some 50 us: once a second
_PHASES = ("input_wait", "forward", "backward", "optimizer", "gap")


class GpuTimes:
    """Events of the stream that computes on `device`. `cuda` is `torch.cuda`, or anything that behaves like it."""

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
        self._last: Event | None = None  # the event that ended the step before: this step begins there
        self._waiting: deque[tuple[int, Event, list[Mark]]] = deque()
        self._memory_at = 0
        self._block = (0, 0, 0)  # its first step, when that began, and what the recorder had taken by then
        self.on = True
        self.next_step = 0  # with events, where they are off
        # steps that are not told: they had too many marks, too many waited, or theirs could not be read
        self.dropped = 0
        self._unread = 0  # of them, in a row, those whose events could not be read

    def turn(self, step: int, now: int, self_ns: int) -> bool:
        """A step begins `now`: does it have events? `self_ns`: what the recorder has taken in all."""
        begun, since, taken = self._block
        if self.on and step - begun < _BLOCK:
            return True
        if self.on:
            rest = int((step - begun) * ((self_ns - taken) / max(now - since, 1) / _SHARE - 1))
            if step >= _FIRST and rest >= _BLOCK // 2:
                self.on, self._last, self.next_step = False, None, step + min(rest, _REST_MAX)
        else:
            self.on = step >= self.next_step
        if self.on:
            self._block = step, now, self_ns
        return self.on

    def mark(self, ended: str) -> None:
        """`ended` is the phase that ends now; it is charged with what passes on the stream since the last mark."""
        if not self.on or self._capturing():
            return
        if ended == "forward":  # the job may fetch on another stream; asking for it takes as long as recording
            self._stream = self._cuda.current_stream(self._device)
        if len(self._marks) >= _MARKS_MAX:
            self.dropped += self._last is not None
            self._free += [event for event, _ in self._marks]
            self._marks.clear()
            self._last = None
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._marks.append((event, ended))

    def close(self, step: int, ring: Ring) -> None:
        """The step ends: queue its events and read those that have passed. Amid a capture none may be asked: that breaks it."""
        marks, self._marks = self._marks, []
        if self._capturing():
            self._last = None  # part of what this step and the next one did is not on the stream
            return
        if marks:
            before, self._last = self._last, marks[-1][0]
            waiting = len(self._waiting)
            if before is not None and waiting < _OUTSTANDING_MAX and waiting * len(marks) < 4 * _MARKS_MAX:
                self._waiting.append((step, before, marks))
            else:
                self.dropped += before is not None
        while self._waiting and self._waiting[0][2][-1][0].query():
            step, before, marks = self._waiting.popleft()
            try:
                spent = self._read(before, marks)
            except Exception:  # the stream changed amid the step: what is before its last event need not have passed
                let_pass()
                self.dropped += 1
                self._unread += 1
                if self._unread >= _UNREAD_MAX:
                    raise
            else:
                self._unread = 0
                ring.write(KIND_GPU_STEP, 0, (step, *(spent[name] for name in _PHASES), *self._memory()))

    def _capturing(self) -> bool:
        """By Python in any thread, or by whomever on this thread's stream."""
        return bool(self._captures.under_way or self._cuda.is_current_stream_capturing())

    def _read(self, before: Event, marks: list[Mark]) -> dict[str, int]:
        """ns by phase."""
        spent = dict.fromkeys(_PHASES, 0)
        for event, phase in marks:
            spent[phase] += int(before.elapsed_time(event) * 1e6)  # ms to ns
            self._free.append(before)
            before = event
        return spent

    def _memory(self) -> tuple[int, int, int, int]:
        """allocated, reserved, peak bytes and allocator retries, once a second; -1 between. The user's peak is read, never reset."""
        now = self._clock()
        if now - self._memory_at < _MEMORY_EVERY_NS:
            return -1, -1, -1, -1
        self._memory_at = now
        try:
            stats = self._cuda.memory_stats(self._device)
        except (
            Exception
        ):  # an allocator that keeps none (cudaMallocAsync of old versions, one of the job's own): events go on
            let_pass()
            return -1, -1, -1, -1
        return (
            stats.get("allocated_bytes.all.current", -1),
            stats.get("reserved_bytes.all.current", -1),
            stats.get("allocated_bytes.all.peak", -1),
            stats.get("num_alloc_retries", -1),
        )
