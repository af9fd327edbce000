"""Finds backward passes whose gradients are thrown away: `zero_grad()` removes them before the step of their optimizer.

In windows of a few steps, the gradients of a few parameters of each optimizer are compared at the marks of backward passes and optimizer
steps: which object, which version, on the CPU some numbers. Nothing is read on a GPU, and only weak references are kept. A gradient that
somebody else still holds is not thrown away, nor one after which the parameter was changed by hand.
"""

from __future__ import annotations

import sys
import weakref
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..wall import let_pass
from .backward_graph import OTHERS, read_graph
from .process_facts import call_frames, is_users
from .unused_gradients import UPDATED_MAX, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.code_places import CodePlace
    from ...documents.rank_documents import DiscardedGradients
    from .process_facts import Facts

RECORDED = 6  # steps of a window whose passes are followed up
SETTLING_MAX = (
    14  # further steps in which these may be settled: a generator may step once for several steps of its critic
)
FIRST_STEP = 4
OPTIMIZERS_MAX = 8
SITES_MAX = 16
_WATCHED = 3  # parameters of each optimizer
_GRAPH_READS_MAX = 2  # per place: 3 us for each node
_DEPTH_MAX = 100  # frames
_CALLERS_MAX = 3
_OFTEN = 0.9  # of the passes at a place
_SAME_RATIO = 1e-3  # relative: clipping multiplies all numbers of a gradient alike


class _Gradient:
    """A watched parameter's gradient after the last backward pass that changed it."""

    __slots__ = ("numbers", "of", "parameter", "version")

    def __init__(self, gradient: Any, numbers: Any, parameter: Any) -> None:
        self.of, self.version = weakref.ref(gradient), gradient._version
        self.numbers, self.parameter = numbers, parameter  # states of the gradient and its parameter


class _Pass:
    """A backward pass. `open`: optimizers whose parameters got gradients that were neither used nor thrown away so far."""

    __slots__ = ("dropped", "open", "site", "unclear", "used")

    def __init__(self, site: _Site) -> None:
        self.site = site
        self.open: set[int] = set()
        self.dropped: set[int] = set()
        self.used: set[int] = set()
        self.unclear = False  # the job may have read the gradients


class _Updated:
    """An optimizer that has stepped."""

    __slots__ = ("by_hand", "class_name", "elements", "ids", "kept", "of", "pending", "place", "watched")

    def __init__(self, optimizer: Any, place: CodePlace) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.of, self.place, self.class_name = weakref.ref(optimizer), place, type(optimizer).__qualname__
        few = len(parameters) <= UPDATED_MAX
        self.ids = frozenset(map(id, parameters)) if few else frozenset()
        self.elements = sum(p.numel() for p in parameters) if few else 0
        weights = [p for p in parameters if p.dim() > 1] or parameters
        last = len(weights) - 1
        chosen = sorted({last * n // max(1, _WATCHED - 1) for n in range(_WATCHED)}) if weights and few else []
        self.watched = [weakref.ref(weights[n]) for n in chosen]
        self.kept: dict[int, _Gradient] = {}  # index in `watched` -> its gradient that is pending
        self.pending: list[_Pass] = []
        self.by_hand = False  # the job puts gradients of its own before the step


class _Site:
    """A line that calls `backward()`, and sums over its passes in the recorded steps."""

    __slots__ = ("dropped", "graph", "ns", "outcomes", "passes", "places", "reads", "whole")

    def __init__(self, places: list[CodePlace]) -> None:
        self.places = places  # the line, and those that called its function
        self.passes = self.dropped = self.whole = self.ns = self.reads = 0
        self.outcomes: dict[
            int, list[int]
        ] = {}  # optimizer -> passes that gave it gradients, and those whose gradients it lost
        self.graph: Any = None

    def lost_by(self) -> list[int]:
        """Numbers of the optimizers that (almost) never use the gradients from here."""
        return [number for number, (all_of, lost) in self.outcomes.items() if lost and lost >= _OFTEN * all_of]


class DiscardedGradientLooks:
    """The looks of one process. `place_of`: the line that made an optimizer. `open`: a window is open."""

    def __init__(self, facts: Facts, place_of: Callable[[Any], CodePlace]) -> None:
        self._facts = facts
        self._place_of = place_of
        self.open = self.due = False  # `due`: a window opens at the start of the next step
        self._works = True
        self._step = 0  # of the window
        self._steps = 0  # recorded in all windows
        self._updated: list[_Updated] = []
        self._sites: dict[tuple[tuple[str, int], ...], _Site] = {}
        self._passes: list[_Pass] = []  # of this window
        self._running: tuple[_Site | None, dict[int, list[Any]], int] | None = None

    @property
    def optimizers(self) -> int:
        return len(self._updated)

    def asked(self, step: int, *, needed: bool) -> None:
        """Called now and then: opens a window at the next step, if the job needs one."""
        self.due = needed
        if not needed and step >= FIRST_STEP:
            self._facts.values.setdefault("watched_gradients", 0)

    def turn(self, step: int) -> bool:
        """Called at the start of each step that is not replayed. True if its marks must be seen one by one."""
        if self.due and self._works and not self.open and step >= FIRST_STEP:
            self.open, self._step = True, -1
            self._forget()
        self.due = False
        if self.open:
            self._step += 1
            unsettled = any(each.open for each in self._passes)
            if self._step >= RECORDED + SETTLING_MAX or (self._step >= RECORDED and not unsettled):
                self._close()
        return self.open

    def _forget(self) -> None:
        self._passes, self._running = [], None
        for updated in self._updated:
            updated.pending, updated.kept = [], {}

    def _close(self) -> None:
        self.open = False
        self._steps += RECORDED
        for each in self._passes:
            if not each.open:
                self._count(each)
        self._forget()
        self._note()

    def optimizer_begins(self, optimizer: Any, *, inner: bool = False) -> None:
        """Called before an optimizer's step, or one that a scaler may skip. `inner`: inside the step of another."""
        try:
            known = self._known(optimizer)
            if self.open and not inner and self._undisturbed():
                self._settle()
                for each in self._updated:
                    if each is known or (known is not None and self._shares(each, known)):
                        self._is_used(each)
        except Exception as error:
            self._failed(error)

    def backward_begins(self, roots: Any, *, inner: bool) -> None:
        """Called before a backward pass. `inner`: inside an optimizer's step, which uses its gradients as it likes."""
        self._running = None
        if inner:
            return
        try:
            if not self._undisturbed():
                return
            self._settle()
            site = self._site() if self._step < RECORDED else None
            if site is not None:
                self._read_graph(site, roots)
            before = {number: self._gradients(each) for number, each in enumerate(self._updated)}
            self._running = site, before, perf_counter_ns()
        except Exception as error:
            self._failed(error)

    def backward_ends(self) -> None:
        ended = perf_counter_ns()
        running, self._running = self._running, None
        if running is None:
            return
        try:
            if not self._undisturbed():
                return
            site, before, began = running
            found = _Pass(site) if site is not None else None
            if site is not None and found is not None:
                site.ns += ended - began
                self._passes.append(found)
            with sys.modules["torch"]._C.DisableTorchFunction():
                for number, each in enumerate(self._updated):
                    if number in before:
                        self._got(number, each, before[number], found)
        except Exception as error:
            self._failed(error)

    def _known(self, optimizer: Any) -> _Updated | None:
        for each in self._updated:
            if each.of() is optimizer:
                return each
        if len(self._updated) >= OPTIMIZERS_MAX or not hasattr(optimizer, "__weakref__"):
            return None  # numbers of optimizers stay: their outcomes are kept by number
        with sys.modules["torch"]._C.DisableTorchFunction():
            self._updated.append(_Updated(optimizer, self._place_of(optimizer)))
        return self._updated[-1]

    def _undisturbed(self) -> bool:
        """False, and no window any more, where somebody would see what a look does."""
        torch = sys.modules["torch"]
        modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
        if torch.autograd._profiler_enabled() or (modes is not None and modes()):
            self.open = False
            self._forget()
        return self.open

    def _site(self) -> _Site | None:
        frame, _ = call_frames(2)
        if frame is None:
            return None
        places: list[CodePlace] = []
        above: Any = frame
        for _ in range(_DEPTH_MAX):
            if above is None or len(places) > _CALLERS_MAX:
                break
            if is_users(above.f_code.co_filename):
                places.append({"file": above.f_code.co_filename, "line": above.f_lineno})
            above = above.f_back
        places = places or [{"file": frame.f_code.co_filename, "line": frame.f_lineno}]
        key = tuple((place["file"], place["line"]) for place in places)
        if key not in self._sites and len(self._sites) < SITES_MAX:
            self._sites[key] = _Site(places)
        return self._sites.get(key)

    def _gradients(self, updated: _Updated) -> list[Any]:
        """Weak references to the gradients of the watched parameters, and their versions."""
        found = []
        for of in updated.watched:
            parameter: Any = of()
            gradient = None if parameter is None else parameter.grad
            found.append(None if gradient is None else (weakref.ref(gradient), gradient._version))
        return found

    def _got(self, number: int, updated: _Updated, before: list[Any], found: _Pass | None) -> None:
        """Notes the gradients that a backward pass has changed."""
        torch = sys.modules["torch"]
        changed = False
        for n, of in enumerate(updated.watched):
            parameter: Any = of()
            gradient = None if parameter is None else parameter.grad
            if gradient is None:
                continue
            was = before[n]
            if was is None or was[0]() is not gradient or was[1] != gradient._version:
                changed = True
                updated.kept[n] = _Gradient(gradient, state_of(torch, gradient), state_of(torch, parameter))
        if changed and found is not None:
            found.open.add(number)
            updated.pending.append(found)

    def _settle(self) -> None:
        """Sees which pending gradients are gone."""
        with sys.modules["torch"]._C.DisableTorchFunction():
            for number, each in enumerate(self._updated):
                if not each.kept:
                    continue
                states = [self._state(each, n, kept) for n, kept in each.kept.items()]
                if "used" in states:
                    self._resolve(number, each, used=True)
                elif all(state == "dropped" for state in states):
                    self._resolve(number, each, used=False)

    def _state(self, updated: _Updated, n: int, kept: _Gradient) -> str:
        torch = sys.modules["torch"]
        parameter: Any = updated.watched[n]()
        held: Any = kept.of()
        if parameter is None or state_of(torch, parameter) != kept.parameter:
            return "used"  # by hand
        gradient = parameter.grad
        if gradient is None:
            return "dropped" if held is None else "used"
        if gradient is not held:
            return "used"  # the job puts its own there
        if gradient._version != kept.version and isinstance(kept.numbers, list) and any(kept.numbers):
            return "there" if any(state_of(torch, gradient)) else "dropped"
        return "there"

    def _is_used(self, updated: _Updated) -> None:
        """Called before the optimizer's step."""
        torch = sys.modules["torch"]
        with torch._C.DisableTorchFunction():
            for n, kept in updated.kept.items():
                parameter: Any = updated.watched[n]()
                held: Any = kept.of()
                gradient = None if parameter is None else parameter.grad
                if gradient is None:
                    continue
                if gradient is not held:
                    updated.by_hand = True
                elif gradient._version != kept.version and not _scaled(kept.numbers, state_of(torch, gradient)):
                    for each in self._passes:
                        each.unclear = True
            if updated.by_hand:
                for each in self._passes:
                    each.unclear = True
        self._resolve(self._updated.index(updated), updated, used=True)

    def _resolve(self, number: int, updated: _Updated, *, used: bool) -> None:
        for each in updated.pending:
            if number in each.open:
                each.open.discard(number)
                (each.used if used else each.dropped).add(number)
        updated.pending, updated.kept = [], {}

    def _shares(self, one: _Updated, other: _Updated) -> bool:
        return any((p := of()) is not None and id(p) in other.ids for of in one.watched)

    def _count(self, found: _Pass) -> None:
        site = found.site
        unclear = found.unclear and not found.used  # the job may mix gradients by itself
        lost = set() if unclear else {number for number in found.dropped if not self._updated[number].by_hand}
        site.passes += bool(found.dropped or found.used)
        site.dropped += bool(lost)
        site.whole += bool(lost) and not found.used
        for number in found.dropped | found.used:
            outcome = site.outcomes.setdefault(number, [0, 0])
            outcome[0] += 1
            outcome[1] += number in lost

    def _read_graph(self, site: _Site, roots: Any) -> None:
        lost = {number for each in self._passes if each.site is site for number in each.dropped}
        if not lost or site.graph is not None or site.reads >= _GRAPH_READS_MAX:
            return
        site.reads += 1
        site.graph = read_graph(roots, self._bit)

    def _bit(self, parameter: int) -> int:
        """Of the first optimizer with a parameter of this id."""
        return next((OTHERS << 1 + number for number, each in enumerate(self._updated) if parameter in each.ids), 0)

    def _note(self) -> None:
        found = [self._described(site) for site in self._sites.values() if site.dropped and site.lost_by()]
        if found or "discarded_gradients" in self._facts.values:
            self._facts.values["discarded_gradients"] = found  # written with the other facts
        self._facts.values["watched_gradients"] = self._steps

    def _described(self, site: _Site) -> DiscardedGradients:
        lost = [self._updated[number] for number in site.lost_by()]
        largest = max(lost, key=lambda each: each.elements)
        found: DiscardedGradients = {
            "file": site.places[0]["file"],
            "line": site.places[0]["line"],
            "callers": site.places[1:],
            "steps": self._steps,
            "passes": site.passes,
            "dropped": site.dropped,
            "whole": site.whole,
            "ns": site.ns,
            "all_ns": sum(each.ns for each in self._sites.values()),
            "class": largest.class_name,
            "made": largest.place,
            "elements": sum(each.elements for each in lost),
            "all_elements": sum(each.elements for each in self._updated),
        }
        if site.graph is not None:
            bits = sum(OTHERS << 1 + number for number in site.lost_by())
            all_work, left = site.graph.work(), site.graph.work(bits)
            found["order"] = site.graph.order(bits)
            found["others"] = bool(site.graph.reaches & OTHERS)
            found["products"] = [all_work.products, all_work.products - left.products]
            found["points"] = [all_work.points, all_work.points - left.points]
        return found

    def _failed(self, error: Exception) -> None:
        let_pass()
        self.open = self._works = False
        self._running = None
        self._facts.miss("discarded gradients: %s" % type(error).__name__)


def _scaled(before: Any, after: Any) -> bool:
    """True if all numbers were multiplied alike. Unknown on a GPU, where they are not read."""
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return False
    largest = max(range(len(before)), key=lambda n: abs(before[n]), default=-1)
    if largest < 0 or not before[largest]:
        return before == after
    ratio, most = after[largest] / before[largest], abs(after[largest])
    return all(abs(after[n] - ratio * before[n]) <= _SAME_RATIO * most for n in range(len(before)))
