"""A look into the making of one batch: where one of its samples spends its time, part by part, and what collating takes.

Nothing of the job is wrapped. The list of indices that the fetcher walks tells where a sample begins and ends, and while that one sample
is made, classes of transforms have a descriptor that hands out their list of steps so that walking it tells where each step begins and
ends. Then the classes are as they were. No frame of ours stands between the job's, so tracebacks are what they would have been; objects,
their types and their attributes stay the job's own; no random number is drawn. (A single transform without a list is the exception: a
wrapper around its `__call__`, which takes its frame out of tracebacks.)
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..facts.loader_facts import batch_bytes
from ..layout import KIND_LOOK, KIND_PART
from ..wall import let_pass
from . import sample_parts
from .sample_standins import FixedSteps, Indices, LookSteps, install, walks_one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ..ring import Ring

# A look costs 0.1 to 0.3 ms, most of it for CPU clocks and caches: a 500th of the time at first, less and less later.
FIRST_EVERY_NS = 100_000_000
LAST_EVERY_NS = 5_000_000_000
# Loading in the training process is timed in clocked steps alone, some ten a second: most of them shall be without a look.
FIRST_EVERY_IN_PROCESS_NS = 200_000_000
_SLOWER = 100  # looks a hundredth of the time since the first one apart: some hundred of them, however long the job
_PARTS_MAX = 24
_GENERATOR = 0x20  # of a code's flags
_STRIDE = 7  # another place in each batch that is looked into, without asking for random numbers
# Of a process's time, where nobody has said another: as `RunOptions.overhead_budget` has it.
_BUDGET = 0.02
BUDGET_FILE = "budget"  # in the ring folder: what the user allows


class Looks:
    """Decides when to look, in one process."""

    def __init__(self, folder: str, first_every_ns: int = FIRST_EVERY_NS) -> None:
        self.names = sample_parts.Names(folder)
        self._first_every_ns = first_every_ns
        self.taken = 0
        self.self_ns = 0
        self._budget = _allowed(folder)
        self._began = 0
        self._due = 0

    def due(self, now: int) -> bool:
        return now >= self._due

    def take(self, now: int, dataset: Any, index: Any, batched: bool = True) -> Look:
        """A look into the batch of these indices; not `batched`: the index is the data set's own business."""
        if not self._began:
            self._began = now
        self._due = now + min(LAST_EVERY_NS, max(self._first_every_ns, (now - self._began) // _SLOWER))
        self.taken += 1
        return Look(self.names, dataset, index, self.taken * _STRIDE, batched)

    def took(self, own_ns: int) -> None:
        """So much did a look take. Another like it must leave all of them within the budget of the time since the first."""
        self.self_ns += own_ns
        self._due = max(self._due, self._began + int((self.self_ns + own_ns) / self._budget))


def _allowed(folder: str) -> float:
    try:
        return max(float(rank_ring_folder.read(folder, BUDGET_FILE)), 1e-6)
    except (OSError, ValueError):
        return _BUDGET


class Look:
    """`index` is what the fetcher is to be given. Either `finish` or `abandon` must follow."""

    def __init__(self, names: sample_parts.Names, dataset: Any, index: Any, place: int, batched: bool = True) -> None:
        self.names = names
        self.thread = get_ident()
        self.open = False  # a sample is being made, and its parts are told apart
        self.wall: dict[int, int] = {}
        self.cpu: dict[int, int] = {}
        self.stack: list[int] = []
        # lists of steps, what was given for them, and what both held then
        self.handed: list[tuple[list[Any], list[Any], list[Any]]] = []
        self.width = self.height = self.file_bytes = -1
        self.self_ns = 0
        self._dataset = dataset
        self._undo: list[Callable[[], None]] = []
        self._last_wall = self._last_cpu = self._charged = 0
        self._collating: tuple[int, int] | None = None
        # samples: one, or all of the batch where they cannot be told apart; 0: as many as it turns out to hold
        self.covers = 0
        self.index = index
        self._over = False
        if batched and type(index) is list and index and walks_one_by_one(dataset):
            self.covers = 1
            self.index = Indices(index)
            self.index.look, self.index.place = self, place % len(index)

    def begin(self) -> None:
        """The fetcher starts: without a list to walk all its samples are looked into, and collating with them."""
        if not self.covers:
            self.covers = len(self.index) if type(self.index) is list else 0
            self._open()

    # -- one sample ------------------------------------------------------------------------------------------------------------

    def walk_samples(self, indices: Iterator[Any], place: int) -> Iterator[Any]:
        for number, index in enumerate(indices):
            if self._over:
                pass  # whoever kept the list walks it again
            elif number == place:
                self._open()
            elif number == place + 1:
                self._close()
            yield index
        self._close()
        self._collating = perf_counter_ns(), thread_time_ns()

    def _open(self) -> None:
        """The wall is here: this runs inside the fetcher's loop."""
        began = perf_counter_ns()
        try:
            makes = sample_parts.makes_samples(self._dataset)
            self.stack = [self.names.number(type(makes), sample_parts.REST)]
            install(self, self._undo, self._dataset, makes)
            self.open = True
        except Exception:
            self._restore()
            let_pass()
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
                self._restore()  # the others must still be brought back
                let_pass()
        for entry in self.handed:
            _agree(*entry)
        self.handed.clear()

    # -- its parts -------------------------------------------------------------------------------------------------------------

    def watches(self) -> bool:
        return self.open and get_ident() == self.thread

    def _read_clocks(self) -> None:
        self._last_wall, self._last_cpu = perf_counter_ns(), thread_time_ns()

    def _charge(self) -> None:
        """The time since the last mark is that of the innermost part."""
        part, cpu, wall = self.stack[-1], thread_time_ns(), perf_counter_ns()
        self.wall[part] = self.wall.get(part, 0) + wall - self._last_wall
        self.cpu[part] = self.cpu.get(part, 0) + cpu - self._last_cpu
        self._charged = wall

    def _go_on(self) -> None:
        """The next part's time begins; what has passed since the last one's end was the look's own."""
        self._read_clocks()
        self.self_ns += self._last_wall - self._charged

    def enter(self, depth: int, item: Any, kind: str) -> None:
        """At this depth another part begins."""
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
        """While the generator stands at a `yield`, the job does that step; it is not on the stack then."""
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
        finally:  # also where the walk is broken off
            if self.open:
                self.leave(depth)

    def hand_out(self, steps: Any) -> Any:
        """A list of steps that tells how far it was walked."""
        if type(steps) is tuple:
            fixed: Any = FixedSteps(steps)
            fixed.look = self
            return fixed
        if type(steps) is not list:
            return steps
        for entry in self.handed:
            if entry[0] is steps:
                _agree(*entry)
                return entry[1]
        given: Any = LookSteps(steps)
        given.look = self
        self.handed.append((steps, given, steps[:]))
        return given

    def _measure(self, values: Any) -> None:
        """The size of the first picture among these. A wall: asking runs code of the job's (a subclass of Tensor), amid the job's own."""
        try:
            self._find_size(values)
        except Exception:
            let_pass()  # else no size: it stays -1, which is "unknown"

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
        """`DatasetFolder.__getitem__` asks for its transform once to see whether there is one, and once to call it."""
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
        """The batch was not made."""
        self.open, self._over = False, True
        self._restore()
        self.index = None  # it knows this look
        self._dataset = None  # who keeps a list of steps keeps this look

    def finish(self, ring: Ring, began: int, samples: int, batch: Any, *, worker: int, loader: int) -> None:
        end, cpu = perf_counter_ns(), thread_time_ns()
        self._close()
        self.abandon()
        collating = self._collating
        ring.write(
            KIND_LOOK,
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
    """A transform that changes its own list (shuffles it, say) meant the list itself: both hold what it made of either."""
    for changed in (given[:], original[:]):
        if list(map(id, changed)) != list(map(id, held)):
            original[:] = given[:] = held[:] = changed
            return


def _variables(frame: FrameType) -> dict[str, Any]:
    """Before Python 3.13 whatever they hold lives on as long as the frame runs: not asked for of a stream, which runs for an epoch."""
    runs_on = frame.f_code.co_flags & _GENERATOR and sys.version_info < (3, 13)
    return {} if runs_on else frame.f_locals


def _is_array(value: Any) -> bool:
    """A tensor or NumPy array: asking these for their shape runs no code of the job's."""
    return isinstance(value, sys.modules["torch"].Tensor) or type(value).__module__ == "numpy"


def _size(value: Any) -> tuple[int, int] | None:
    """Width and height of a picture: PIL, or an array of two or three dimensions with colours first or last."""
    if type(value).__module__.startswith("PIL."):
        return value.size  # type: ignore[no-any-return]
    shape: tuple[int, ...] = getattr(value, "shape", ()) if _is_array(value) else ()
    if len(shape) not in (2, 3) or min(shape) < 1:
        return None
    if len(shape) == 3:
        shape = shape[:2] if shape[2] <= 4 else shape[1:]
    return int(shape[1]), int(shape[0])
