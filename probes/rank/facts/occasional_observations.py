"""Observes what an optimizer updates, before its step: about once a second, after the first four for at most a thousandth of the time.

The classes that derive from `OccasionalObservations` say what is read. Tensors of the job are only read, and only those on the CPU: an
observation never waits for a GPU.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from .process_facts import Facts

EVERY_NS = 1_000_000_000
COST_TIMES = (
    1_000  # interval in multiples of an observation's cost (0.6 to 1 ms, in cold caches): at most 1/1000 of the time
)
# So many come after a second each all the same, unless one took longer than this: a short run would settle nothing.
FIRST, FIRST_COST_MAX_NS = 4, 10_000_000
_WITHOUT_MAX = 5  # observations that found no tensor to read, after which none follows: the job trains on a GPU
_NEVER = 1 << 62


class OccasionalObservations:
    """The observations of one process. Each covers all optimizers of its step; an error ends them."""

    NAME = ""  # of the observations, where the facts say that they failed

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._due_ns = 0
        self._step = -1  # of the last observation
        self._without = 0
        self._count = 0

    def observe(self, optimizer: Any, step: int) -> None:
        """Called before an optimizer's step: reads a few of its tensors if that is due. Never raises for what they are."""
        began = perf_counter_ns()
        if step != self._step and began < self._due_ns:
            return
        self._count += step != self._step
        try:
            self._observe(sys.modules["torch"], optimizer, step)
            now = perf_counter_ns()
            soon = self._count < FIRST and now - began <= FIRST_COST_MAX_NS
            wait_ns = EVERY_NS if soon else max(EVERY_NS, COST_TIMES * (now - began))
            self._due_ns = now + wait_ns if self._goes_on() else _NEVER
        except Exception as error:  # an optimizer that keeps its state otherwise
            reraise_signal_exception()
            self._due_ns, self._step = _NEVER, -1
            self._facts.miss("%s: %s" % (self.NAME, type(error).__name__))

    def _observe(self, torch: Any, optimizer: Any, step: int) -> None:
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        if torch.autograd._profiler_enabled() or (modes is not None and modes()):
            return  # they would see what is done here
        with torch._C.DisableTorchFunction():
            found = self._read(torch, optimizer, step)
        self._step = step
        self._without = 0 if found else self._without + 1

    def _goes_on(self) -> bool:
        """True if further observations may find something."""
        return self._without < _WITHOUT_MAX

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        """Reads tensors of this optimizer. True if there was one that it could read."""
        raise NotImplementedError
