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

from ..facts.precision_facts import is_observed
from ..signal_exceptions import reraise_signal_exception
from .backward_graph import OTHERS, read_graph
from .backward_passes import BackwardPass, BackwardSite, KeptGradient, SteppedOptimizer, calling_lines, scaled_alike
from .unused_gradients import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.code_places import CodePlace
    from ...documents.model_documents import DiscardedGradients
    from ..facts.process_facts import Facts

RECORDED = 6  # steps of a window whose passes are followed up
# Further steps in which these may be settled: a generator may step once for several steps of its critic.
SETTLING_MAX = 14
FIRST_STEP = 4
OPTIMIZERS_MAX = 8
SITES_MAX = 16
_GRAPH_READS_MAX = 2  # per place: 3 us for each node


class DiscardedGradientWatch:
    """The observations of one process. `place_of`: the line that made an optimizer. `open`: a window is open."""

    def __init__(self, facts: Facts, place_of: Callable[[Any], CodePlace]) -> None:
        self._facts = facts
        self._place_of = place_of
        self.open = self.due = False  # `due`: a window opens at the start of the next step
        self._works = True
        self._step = 0  # of the window
        self._steps = 0  # recorded in all windows
        self._updated: list[SteppedOptimizer] = []
        self._sites: dict[tuple[tuple[str, int], ...], BackwardSite] = {}
        self._passes: list[BackwardPass] = []  # of this window
        self._running: tuple[BackwardSite | None, dict[int, list[Any]], int] | None = None

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
            found = BackwardPass(site) if site is not None else None
            if site is not None and found is not None:
                site.ns += ended - began
                self._passes.append(found)
            with sys.modules["torch"]._C.DisableTorchFunction():
                for number, each in enumerate(self._updated):
                    if number in before:
                        self._got(number, each, before[number], found)
        except Exception as error:
            self._failed(error)

    def _known(self, optimizer: Any) -> SteppedOptimizer | None:
        for each in self._updated:
            if each.of() is optimizer:
                return each
        if len(self._updated) >= OPTIMIZERS_MAX or not hasattr(optimizer, "__weakref__"):
            return None  # numbers of optimizers stay: their outcomes are kept by number
        with sys.modules["torch"]._C.DisableTorchFunction():
            self._updated.append(SteppedOptimizer(optimizer, self._place_of(optimizer)))
        return self._updated[-1]

    def _undisturbed(self) -> bool:
        """False, and no window any more, where somebody would see what an observation does."""
        if is_observed(sys.modules["torch"]):
            self.open = False
            self._forget()
        return self.open

    def _site(self) -> BackwardSite | None:
        places = calling_lines()
        key = tuple((place["file"], place["line"]) for place in places)
        if places and key not in self._sites and len(self._sites) < SITES_MAX:
            self._sites[key] = BackwardSite(places)
        return self._sites.get(key)

    def _gradients(self, updated: SteppedOptimizer) -> list[Any]:
        """Weak references to the gradients of the watched parameters, and their versions."""
        found = []
        for of in updated.watched:
            parameter: Any = of()
            gradient = None if parameter is None else parameter.grad
            found.append(None if gradient is None else (weakref.ref(gradient), gradient._version))
        return found

    def _got(self, number: int, updated: SteppedOptimizer, before: list[Any], found: BackwardPass | None) -> None:
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
                updated.kept[n] = KeptGradient(gradient, state_of(torch, gradient), state_of(torch, parameter))
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
                if "replaced" in states:
                    self._mixes_by_hand(each)
                if "used" in states or "replaced" in states:
                    self._resolve(number, each, used=True)
                elif all(state == "dropped" for state in states):
                    self._resolve(number, each, used=False)

    def _state(self, updated: SteppedOptimizer, n: int, kept: KeptGradient) -> str:
        torch = sys.modules["torch"]
        parameter: Any = updated.watched[n]()
        held: Any = kept.of()
        if parameter is None or state_of(torch, parameter) != kept.parameter:
            return "used"  # by hand
        gradient = parameter.grad
        if gradient is None:
            return "dropped" if held is None else "used"
        if gradient is not held:
            return "replaced"
        if gradient._version != kept.version and isinstance(kept.numbers, list) and any(kept.numbers):
            return "there" if any(state_of(torch, gradient)) else "dropped"
        return "there"

    def _is_used(self, updated: SteppedOptimizer) -> None:
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
                    self._mixes_by_hand(updated)
                elif gradient._version != kept.version and not scaled_alike(kept.numbers, state_of(torch, gradient)):
                    for each in self._passes:
                        each.unclear = True
        self._resolve(self._updated.index(updated), updated, used=True)

    def _mixes_by_hand(self, updated: SteppedOptimizer) -> None:
        """The job puts gradients of its own there, and may have made them of all that it got before."""
        updated.by_hand = True
        for each in self._passes:
            each.unclear = True

    def _resolve(self, number: int, updated: SteppedOptimizer, *, used: bool) -> None:
        for each in updated.pending:
            if number in each.open:
                each.open.discard(number)
                (each.used if used else each.dropped).add(number)
        updated.pending, updated.kept = [], {}

    def _shares(self, one: SteppedOptimizer, other: SteppedOptimizer) -> bool:
        return any((p := of()) is not None and id(p) in other.ids for of in one.watched)

    def _count(self, found: BackwardPass) -> None:
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

    def _read_graph(self, site: BackwardSite, roots: Any) -> None:
        lost = {number for each in self._passes if each.site is site for number in each.dropped}
        if not lost or site.graph is not None or site.reads >= _GRAPH_READS_MAX:
            return
        site.reads += 1
        site.graph = read_graph(roots, self._bit)

    def _bit(self, parameter: Any) -> int:
        """Of the first optimizer that has it."""
        return next((OTHERS << 1 + number for number, each in enumerate(self._updated) if id(parameter) in each.ids), 0)

    def _note(self) -> None:
        found = [self._described(site) for site in self._sites.values() if site.dropped and site.lost_by()]
        if found or "discarded_gradients" in self._facts.values:
            self._facts.values["discarded_gradients"] = found  # written with the other facts
        self._facts.values["watched_gradients"] = self._steps

    def _described(self, site: BackwardSite) -> DiscardedGradients:
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
        reraise_signal_exception()
        self.open = self._works = False
        self._running = None
        self._facts.miss("discarded gradients: %s" % type(error).__name__)
