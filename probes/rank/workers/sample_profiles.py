"""Profiles the loading of one batch: the time of each part of one sample, and of collating.

None of the job's objects is wrapped. A list that records when a sample starts and ends replaces the fetcher's index list. During that
sample, transform classes have a descriptor that returns their list of steps as a list that records when each step starts and ends. Then the
classes are restored. None of our frames is between the job's, so tracebacks do not change; objects keep their types and attributes; no
random number is drawn. The only exception is a single transform without a list: its `__call__` gets a wrapper, which removes its frame
from tracebacks.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..facts.batch_contents import batch_bytes
from ..layout import KIND_PART, KIND_PROFILED
from ..side_files import BUDGET
from ..signal_exceptions import reraise_signal_exception
from . import sample_parts
from .chunked_arrays import note_chunked_arrays
from .sample_standins import Indices, StepList, StepTuple, install, walks_one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ..ring import Ring

# Profiling a sample costs 0.1 to 0.3 ms, mostly for CPU clocks and cold caches: 1/500 of the time at first, then less and less.
FIRST_EVERY_NS = 100_000_000
LAST_EVERY_NS = 5_000_000_000
# Loading in the training process is timed only in clocked steps, some ten per second; most of them should be without profiling.
FIRST_EVERY_IN_PROCESS_NS = 200_000_000
_INTERVAL_DIVISOR = (
    100  # each interval is 1/100 of the time since the first profile, so there are some hundred, however long the job
)
_PARTS_MAX = 24
_GENERATOR = 0x20  # flag of a code object
_PLACE_STRIDE = 7  # a different index in each profiled batch, without drawing random numbers
# Default share of a process's time, equal to `RunOptions.overhead_budget`.
_BUDGET_SHARE = 0.02


class ProfileSchedule:
    """Schedules the profiling of samples in one process."""

    def __init__(self, folder: str, first_every_ns: int = FIRST_EVERY_NS) -> None:
        self.names = sample_parts.Names(folder)
        self._folder = folder
        self._first_every_ns = first_every_ns
        self.started = 0
        self.self_ns = 0
        self._budget = budget_share(folder)
        self._began = 0
        self._due = 0

    def due(self, now: int) -> bool:
        return now >= self._due

    def start(self, now: int, dataset: Any, index: Any, batched: bool = True) -> BatchProfile:
        """Returns a profile for the batch of these indices. `batched` False: the dataset makes a whole batch from one index."""
        if not self._began:
            self._began = now
            note_chunked_arrays(self._folder, dataset)
        self._due = now + min(LAST_EVERY_NS, max(self._first_every_ns, (now - self._began) // _INTERVAL_DIVISOR))
        self.started += 1
        return BatchProfile(self.names, dataset, index, self.started * _PLACE_STRIDE, batched)

    def add_cost(self, own_ns: int) -> None:
        """Adds the cost of one profile. The next one is due once the total is within its budget, a share of the time since the first."""
        self.self_ns += own_ns
        self._due = max(self._due, self._began + int((self.self_ns + own_ns) / self._budget))


def budget_share(folder: str) -> float:
    """The share of a process's time that the user allows."""
    try:
        return max(float(rank_ring_folder.read(folder, BUDGET)), 1e-6)
    except (OSError, ValueError):
        return _BUDGET_SHARE


class BatchProfile:
    """A profile of one batch. Pass `index` to the fetcher, then call `finish` or `abandon`."""

    def __init__(self, names: sample_parts.Names, dataset: Any, index: Any, place: int, batched: bool = True) -> None:
        self.names = names
        self.thread = get_ident()
        self.open = False  # a sample is being loaded, and its parts are timed
        self.wall: dict[int, int] = {}
        self.cpu: dict[int, int] = {}
        self.stack: list[int] = []
        # lists of steps, their replacements, and the contents of both when handed out
        self.handed: list[tuple[list[Any], list[Any], list[Any]]] = []
        self.width = self.height = self.file_bytes = -1
        self.self_ns = 0
        self._dataset = dataset
        self._undo: list[Callable[[], None]] = []
        self._last_wall = self._last_cpu = self._charged = 0
        self._collating: tuple[int, int] | None = None
        # number of profiled samples: one, or the whole batch if they cannot be separated; 0: the batch's size, known later
        self.covers = 0
        self.index = index
        self._over = False
        if batched and type(index) is list and index and walks_one_by_one(dataset):
            self.covers = 1
            self.index = Indices(index)
            self.index.profile, self.index.place = self, place % len(index)

    def begin(self) -> None:
        """Called before the fetch. Without an index list, all samples and collating are profiled together."""
        if not self.covers:
            self.covers = len(self.index) if type(self.index) is list else 0
            self._open()

    # -- one sample ------------------------------------------------------------------------------------------------------------

    def walk_samples(self, indices: Iterator[Any], place: int) -> Iterator[Any]:
        for number, index in enumerate(indices):
            if self._over:
                pass  # code that kept the list is iterating again
            elif number == place:
                self._open()
            elif number == place + 1:
                self._close()
            yield index
        self._close()
        self._collating = perf_counter_ns(), thread_time_ns()

    def _open(self) -> None:
        """Starts timing a sample. Swallows all errors, because it runs inside the fetcher's loop."""
        began = perf_counter_ns()
        try:
            makes = sample_parts.makes_samples(self._dataset)
            self.stack = [self.names.number(type(makes), sample_parts.REST)]
            install(self, self._undo, self._dataset, makes)
            self.open = True
        except Exception:
            self._restore()
            reraise_signal_exception()
        self.self_ns += perf_counter_ns() - began
        self._read_clocks()

    def _close(self) -> None:
        if self.open:
            self.open = False
            self._charge()
        if self._undo:
            began = perf_counter_ns()
            self._restore()
            self.self_ns += perf_counter_ns() - began

    def _restore(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except Exception:
                self._restore()  # the others must still be restored
                reraise_signal_exception()
        for entry in self.handed:
            _agree(*entry)
        self.handed.clear()

    # -- its parts -------------------------------------------------------------------------------------------------------------

    def watches(self) -> bool:
        return self.open and get_ident() == self.thread

    def _read_clocks(self) -> None:
        self._last_wall, self._last_cpu = perf_counter_ns(), thread_time_ns()

    def _charge(self) -> None:
        """Adds the time since the last mark to the innermost part."""
        part, cpu, wall = self.stack[-1], thread_time_ns(), perf_counter_ns()
        self.wall[part] = self.wall.get(part, 0) + wall - self._last_wall
        self.cpu[part] = self.cpu.get(part, 0) + cpu - self._last_cpu
        self._charged = wall

    def _go_on(self) -> None:
        """Starts the time of the next part. The time since the last part's end is profiling cost."""
        self._read_clocks()
        self.self_ns += self._last_wall - self._charged

    def enter(self, depth: int, item: Any, kind: str) -> None:
        """Starts a part at this depth."""
        self._charge()
        del self.stack[depth:]
        self.stack.append(self.names.number(item, kind))
        self._go_on()

    def leave(self, depth: int) -> None:
        if len(self.stack) > depth:
            self._charge()
            del self.stack[depth:]
            self._go_on()

    def walk_steps(self, steps: Iterator[Any]) -> Iterator[Any]:
        """Yields the steps and times them. The job runs each step while this generator is suspended, so it is not on the stack."""
        if not self.watches():
            yield from steps
            return
        depth = len(self.stack)
        if self.width < 0:
            self._measure(_variables(sys._getframe(1)).values())
        try:
            for step in steps:
                if self.open:
                    self.enter(depth, step, sample_parts.TRANSFORM)
                yield step
        finally:  # also if the iteration stops early
            if self.open:
                self.leave(depth)

    def hand_out(self, steps: Any) -> Any:
        """Returns the steps as a list or tuple that records the progress of its iteration."""
        if type(steps) is tuple:
            fixed: Any = StepTuple(steps)
            fixed.profile = self
            return fixed
        if type(steps) is not list:
            return steps
        for entry in self.handed:
            if entry[0] is steps:
                _agree(*entry)
                return entry[1]
        given: Any = StepList(steps)
        given.profile = self
        self.handed.append((steps, given, steps[:]))
        return given

    def _measure(self, values: Any) -> None:
        """Records the size of the first image among the values. Swallows errors: a Tensor subclass may run the job's code."""
        try:
            self._find_size(values)
        except Exception:
            reraise_signal_exception()  # the size stays -1, unknown

    def _find_size(self, values: Any) -> None:
        for value in list(values)[:10]:
            several = list(value.values())[:4] if type(value) is dict else value
            for each in several[:4] if type(several) in (list, tuple) else (several,):
                size = _size(each)
                if size is not None:
                    self.width, self.height = size
                    return

    def loads(self, dataset: Any, loader: Any) -> None:
        self.enter(1, loader, sample_parts.LOAD)

    def transforms(self, dataset: Any, transform: Any) -> None:
        """Called when `DatasetFolder.__getitem__` reads its transform. It reads it twice: to test for None and to call it."""
        self.leave(1)
        if self.file_bytes < 0:
            self._charged = perf_counter_ns()
            known = sys._getframe(2).f_locals
            self._measure([known.get("sample")])
            try:
                self.file_bytes = os.stat(known["path"]).st_size
            except (OSError, KeyError, TypeError, ValueError):
                self.file_bytes = 0
            self._go_on()
        if transform is not None and sample_parts.steps_of(transform) is None:
            self.enter(1, transform, sample_parts.TRANSFORM)

    def labels(self, dataset: Any, transform: Any) -> None:
        self.leave(1)

    # -- the batch -------------------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Ends the profile without a result, as when loading the batch failed."""
        self.open, self._over = False, True
        self._restore()
        self.index = None  # it refers to this profile
        self._dataset = None  # code that keeps a list of steps also keeps this object

    def finish(self, ring: Ring, began: int, samples: int, batch: Any, *, worker: int, loader: int) -> None:
        end, cpu = perf_counter_ns(), thread_time_ns()
        self._close()
        self.abandon()
        collating = self._collating
        ring.write(
            KIND_PROFILED,
            0,
            (
                worker,
                loader,
                began,
                end,
                samples,
                self.covers or samples,
                sum(self.wall.values()),
                sum(self.cpu.values()),
                end - collating[0] if collating else -1,
                cpu - collating[1] if collating else -1,
                batch_bytes(batch) or -1,
                self.width,
                self.height,
                self.file_bytes if self.file_bytes > 0 else -1,
                self.self_ns,
            ),
        )
        for part in sorted(self.cpu, key=lambda number: -self.wall[number])[:_PARTS_MAX]:
            ring.write(KIND_PART, 0, (worker, loader, end, part, self.wall[part], self.cpu[part]))


def _agree(original: list[Any], given: list[Any], held: list[Any]) -> None:
    """Copies changes that a transform made to its list (a shuffle, say) from the replacement to the original, or back."""
    for changed in (given[:], original[:]):
        if list(map(id, changed)) != list(map(id, held)):
            original[:] = given[:] = held[:] = changed
            return


def _variables(frame: FrameType) -> dict[str, Any]:
    """The frame's variables; empty for a generator before Python 3.13: it may run for an epoch, and reading them keeps them alive."""
    runs_on = frame.f_code.co_flags & _GENERATOR and sys.version_info < (3, 13)
    return {} if runs_on else frame.f_locals


def _is_array(value: Any) -> bool:
    """True for a tensor or NumPy array, whose shape can be read without running the job's code."""
    return isinstance(value, sys.modules["torch"].Tensor) or type(value).__module__ == "numpy"


def _size(value: Any) -> tuple[int, int] | None:
    """Width and height of a PIL image, or of an array of two or three dimensions with channels first or last; else None."""
    if type(value).__module__.startswith("PIL."):
        return value.size  # type: ignore[no-any-return]
    shape: tuple[int, ...] = getattr(value, "shape", ()) if _is_array(value) else ()
    if len(shape) not in (2, 3) or min(shape) < 1:
        return None
    if len(shape) == 3:
        shape = shape[:2] if shape[2] <= 4 else shape[1:]
    return int(shape[1]), int(shape[0])
