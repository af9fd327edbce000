"""Sees backward passes that go again through nodes of autograd's graph which an earlier pass for the same gradients has kept.

One pass for the sum of their losses would go through these nodes once. Only passes that add to gradients which nobody else changes in
between are of this kind: what happens between two passes shows in the versions of parameters and gradients. Nodes are known by their
sequence numbers, and no object of the job is kept, for a node would keep the activations of its graph.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception
from .backward_graph import LEAF, OTHERS, read_graph
from .backward_nodes import SEQUENCE_NUMBER, STEPS, nodes_of, undisturbed
from .backward_passes import calling_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...documents.model_documents import RepeatedPassLine
    from ..facts.process_facts import Facts

NODES_MAX = 40_000  # in all steps: 1 us each, and 3 us more where their work is read
LINES_MAX = 8
_ARGUMENTS = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")
_USED = OTHERS << 1  # bit of all leaves


class _Step:
    """What was seen in one step. `products`, `points`: of all passes, and of nodes that an earlier one went through."""

    __slots__ = ("again", "known", "lines", "passes", "points", "products", "works")

    def __init__(self) -> None:
        self.passes = self.again = 0
        self.lines: dict[tuple[str, int], int] = {}  # passes at each line
        self.products, self.points = [0, 0], [0, 0]
        self.known = self.works = True  # what its passes go through, and how much work that is


class RepeatedPassWatch:
    """The passes of a few steps of one process. `updated`: ids of the parameters of optimizers."""

    def __init__(self, facts: Facts, updated: Callable[[], set[int]]) -> None:
        self._facts, self._updated = facts, updated
        self._steps = list(STEPS)
        self._nodes_left = NODES_MAX
        self._step = _Step()
        self._looked = self._repeating = self._passes = self._again = 0
        self._lines: dict[tuple[str, int], int] = {}
        self._products, self._points = [0, 0], [0, 0]
        self._seen: set[int] = set()  # numbers of nodes in graphs that earlier passes have kept
        self._here: set[int] = set()  # of these, those that the running pass goes through again
        self._kept: list[int] = []  # nodes of the running pass, if it keeps them
        self._chain: list[
            tuple[str, int]
        ] = []  # lines of passes since the gradients were used, that are not counted yet
        self._leaves: dict[int, weakref.ref[Any]] = {}  # behind these nodes, by id
        self._states: dict[int, Any] = {}  # of these after the last pass
        self.open = False  # in a step whose passes are seen

    def turn(self, step: int) -> bool:
        """Called at the start of each step that is not replayed. True if its marks must be seen one by one."""
        if self.open:
            self._note()
        self.open = bool(self._steps) and step >= self._steps[0]
        if self.open:
            self._steps = [later for later in self._steps if later > step]
            self._step = _Step()
        return self.open

    def optimizer_begins(self) -> None:
        """Called before an optimizer's step: it uses the gradients so far."""
        self._forget()

    def backward_begins(self, roots: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Called before a backward pass of a step that is open, with the arguments of `torch.autograd.backward`."""
        self._here, self._kept = set(), []
        try:
            torch = sys.modules["torch"]
            self._step.passes += 1
            keeps = _keeps_graph(args, kwargs)
            if roots is None or not undisturbed(torch):
                self._step.known = False
            if keeps is None or not self._step.known:
                self._step.works = False
                self._forget()
                return
            with torch._C.DisableTorchFunction():
                if self._seen and self._touched():
                    self._forget()
                if keeps or self._seen or self._repeating:
                    self._read(torch, roots, keeps=keeps)
        except Exception as error:
            self._failed(error)

    def again(self, node: Any) -> bool:
        """True if an earlier pass went through this node, of the pass that begins."""
        return bool(self._here) and hasattr(node, SEQUENCE_NUMBER) and getattr(node, SEQUENCE_NUMBER)() in self._here

    def backward_ends(self) -> None:
        try:
            if self._here and not self._kept:
                self._forget()  # they are gone with this pass
            self._seen.update(self._kept)
            with sys.modules["torch"]._C.DisableTorchFunction():
                self._states = {key: _state(leaf) for key, of in self._leaves.items() if (leaf := of()) is not None}
        except Exception as error:
            self._failed(error)
        self._here, self._kept = set(), []

    def _read(self, torch: Any, roots: Any, *, keeps: bool) -> None:
        """Sees which nodes the pass goes through, and how much work they are if an earlier step has shown that some repeat."""
        nodes = nodes_of(roots if isinstance(roots, (list, tuple)) else [roots], self._nodes_left)
        numbers = [getattr(node, SEQUENCE_NUMBER)() for node in nodes or () if hasattr(node, SEQUENCE_NUMBER)]
        # each thread counts by itself: with nodes of several threads a number may stand for another one the next time
        if nodes is None or len(set(numbers)) < len(numbers) or bool(numbers) != bool(nodes):
            self._step.known = False
            self._forget()
            return
        self._nodes_left -= len(nodes)
        self._here = self._seen.intersection(numbers)
        if self._here or keeps:
            self._follow(self._here)
        if self._repeating:
            graph = read_graph(roots, lambda _: _USED, self.again)
            self._step.works &= graph is not None
            for work, at in ((graph.work(), 0), (graph.work(again=True), 1)) if graph is not None else ():
                self._step.products[at] += work.products
                self._step.points[at] += work.points
        if keeps and not self._watch(torch, nodes):
            self._forget()
        elif keeps:
            self._kept = numbers

    def _follow(self, here: set[int]) -> None:
        places = calling_lines()
        self._chain += [(places[0]["file"], places[0]["line"])] if places else []
        if here:
            self._step.again += 1
            for key in self._chain:
                if key in self._step.lines or len(self._step.lines) < LINES_MAX:
                    self._step.lines[key] = self._step.lines.get(key, 0) + 1
            self._chain = []

    def _watch(self, torch: Any, nodes: list[Any]) -> bool:
        """False if somebody may use the gradients of each pass: hooks, or the job itself those of tensors that are no parameters."""
        updated = self._updated()
        for node in nodes:
            for following, _ in node.next_functions:
                if following is None or following.name() != LEAF or id(following.variable) in self._leaves:
                    continue
                leaf = following.variable
                hooked = leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None)
                if hooked or not (id(leaf) in updated or isinstance(leaf, torch.nn.Parameter)):
                    return False
                self._leaves[id(leaf)] = weakref.ref(leaf)
        return True

    def _touched(self) -> bool:
        """True if a parameter or a gradient is not as the last pass left it."""
        for key, (version, gradient, of_gradient) in self._states.items():
            leaf: Any = self._leaves[key]()
            if leaf is None or leaf._version != version:
                return True
            now, held = leaf.grad, gradient and gradient()
            if now is not held or (gradient is not None and (held is None or held._version != of_gradient)):
                return True
        return False

    def _forget(self) -> None:
        self._seen, self._here, self._kept, self._chain = set(), set(), [], []
        self._leaves, self._states = {}, {}

    def _note(self) -> None:
        self._forget()
        step = self._step
        if not step.known:
            return
        if self._repeating and step.works:
            self._products = [self._products[n] + step.products[n] for n in (0, 1)]
            self._points = [self._points[n] + step.points[n] for n in (0, 1)]
        self._looked += 1
        self._repeating += bool(step.again)
        self._passes += step.passes
        self._again += step.again
        for key, passes in step.lines.items():
            if key in self._lines or len(self._lines) < LINES_MAX:
                self._lines[key] = self._lines.get(key, 0) + passes
        lines: list[RepeatedPassLine] = [
            {"file": file, "line": line, "passes": passes} for (file, line), passes in self._lines.items()
        ]
        # written with the other facts
        self._facts.values["repeated_passes"] = {
            "steps": self._looked,
            "repeating": self._repeating,
            "passes": self._passes,
            "again": self._again,
            "lines": lines,
            "products": self._products,
            "points": self._points,
        }

    def _failed(self, error: Exception) -> None:
        reraise_signal_exception()
        self._steps, self.open = [], False
        self._forget()
        self._facts.miss("repeated backward passes: %s" % type(error).__name__)


def _keeps_graph(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | None:
    """None for a pass whose gradients get a graph themselves, or go to some inputs alone: adding up losses would change it."""
    given = {**{name: args[n] for n, name in enumerate(_ARGUMENTS[: len(args)])}, **kwargs}
    if given.get("create_graph") or given.get("inputs") is not None:
        return None
    return bool(given.get("retain_graph"))


def _state(leaf: Any) -> tuple[int, weakref.ref[Any] | None, int]:
    gradient = leaf.grad
    if gradient is None:
        return leaf._version, None, 0
    return leaf._version, weakref.ref(gradient), gradient._version
