"""Tracks CUDA graph captures in all threads. During a capture the recorder must not call CUDA.

A capture in the default mode fails if any thread of the process queries an event (cudaErrorStreamCaptureUnsupported), and
`is_current_stream_capturing` covers the calling thread's stream only. Captures started by C++ code are not detected.
"""

from __future__ import annotations

import _thread
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from ..hidden_frames import hide_frame, wraps
from ..signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from collections.abc import Callable

    Found = TypeVar("Found")

_WAIT_S = 1.0  # maximum wait for another thread of the recorder; a dump takes some 10 ms and holds the GIL


class Captures:
    """The running captures. `under_way` is empty if there is none. A graph that is deleted during its capture is removed."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None  # called before a capture starts
        self.forget()

    def forget(self) -> None:
        """Resets in a new or forked process."""
        self.under_way: dict[int, Any] = {}
        self._asking = _thread.allocate_lock()  # a thread of the recorder holds it for its check and its call

    def started(self, graph: Any) -> None:
        self.before()
        key, under_way = id(graph), self.under_way
        under_way[key] = weakref.ref(graph, lambda _: under_way.pop(key, None))
        if self._asking.acquire(timeout=_WAIT_S):
            self._asking.release()

    def ended(self, graph: Any) -> None:
        self.under_way.pop(id(graph), None)

    def outside(self, call: Callable[[], Found], otherwise: Found) -> Found:
        """Returns `call()`, or `otherwise` during a CUDA graph capture. The call delays new captures. For the recorder's threads."""
        with self._asking:
            return otherwise if self.under_way else call()


def watch(torch: Any, captures: Captures, failed: Callable[[], None]) -> list[Any]:
    """Wraps the start and end of every capture from Python, including `torch.cuda.graph`, `make_graphed_callables` and inductor."""
    kind = torch.cuda.CUDAGraph
    begin, end = kind.capture_begin, kind.capture_end

    def quietly(call: Callable[[Any], None], graph: Any) -> None:
        try:
            call(graph)
        except Exception:
            reraise_signal_exception()
            failed()

    @wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(captures.started, self)
        try:
            return begin(self, *args, **kwargs)
        except BaseException as error:
            quietly(captures.ended, self)
            hide_frame(error)
            raise

    @wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            quietly(captures.ended, self)

    kind.capture_begin, kind.capture_end = capture_begin, capture_end
    return [capture_begin, capture_end]
