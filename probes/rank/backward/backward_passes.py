"""What is kept of backward passes until their gradients are used or thrown away. Of the job's objects only weak references."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..facts.process_facts import call_frames, is_users
from .unused_gradients import UPDATED_MAX

if TYPE_CHECKING:
    from ...documents.code_places import CodePlace
    from .backward_graph import BackwardGraph

_WATCHED = 3  # parameters of each optimizer
_OFTEN = 0.9  # of the passes at a place
_DEPTH_MAX = 100  # frames
_LINES_MAX = 4
_SAME_RATIO = 1e-3  # relative: clipping multiplies all numbers of a gradient alike


class KeptGradient:
    """A watched parameter's gradient after the last backward pass that changed it."""

    __slots__ = ("numbers", "of", "parameter", "version")

    def __init__(self, gradient: Any, numbers: Any, parameter: Any) -> None:
        self.of, self.version = weakref.ref(gradient), gradient._version
        self.numbers, self.parameter = numbers, parameter  # states of the gradient and its parameter


class BackwardPass:
    """A backward pass. `open`: optimizers whose parameters got gradients that were neither used nor thrown away so far."""

    __slots__ = ("dropped", "open", "site", "unclear", "used")

    def __init__(self, site: BackwardSite) -> None:
        self.site = site
        self.open: set[int] = set()
        self.dropped: set[int] = set()
        self.used: set[int] = set()
        self.unclear = False  # the job may have read the gradients


class SteppedOptimizer:
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
        self.kept: dict[int, KeptGradient] = {}  # index in `watched` -> its gradient that is pending
        self.pending: list[BackwardPass] = []
        self.by_hand = False  # the job puts gradients of its own before the step


class BackwardSite:
    """A line that calls `backward()`, and sums over its passes in the recorded steps."""

    __slots__ = ("dropped", "graph", "ns", "outcomes", "passes", "places", "reads", "whole")

    def __init__(self, places: list[CodePlace]) -> None:
        self.places = places  # the line, and those that called its function
        self.passes = self.dropped = self.whole = self.ns = self.reads = 0
        self.outcomes: dict[
            int, list[int]
        ] = {}  # optimizer -> passes that gave it gradients, and those whose gradients it lost
        self.graph: BackwardGraph | None = None

    def lost_by(self) -> list[int]:
        """Numbers of the optimizers that (almost) never use the gradients from here."""
        return [number for number, (all_of, lost) in self.outcomes.items() if lost and lost >= _OFTEN * all_of]


def calling_lines() -> list[CodePlace]:
    """The user's lines on the stack, innermost first; without any, the innermost line of an installed package."""
    innermost, _ = call_frames(2)
    places: list[CodePlace] = []
    frame = innermost
    for _ in range(_DEPTH_MAX):
        if frame is None or len(places) == _LINES_MAX:
            break
        if frame is innermost or is_users(frame.f_code.co_filename):
            places.append({"file": frame.f_code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return places


def scaled_alike(before: Any, after: Any) -> bool:
    """True if all numbers were multiplied alike. Unknown on a GPU, where they are not read."""
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return False
    largest = max(range(len(before)), key=lambda n: abs(before[n]), default=-1)
    if largest < 0 or not before[largest]:
        return before == after
    ratio, most = after[largest] / before[largest], abs(after[largest])
    return all(abs(after[n] - ratio * before[n]) <= _SAME_RATIO * most for n in range(len(before)))
