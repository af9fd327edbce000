"""Detects evaluations without a loader by their only sign: the training model is put into `eval()` mode.

The recorded place is the line that calls the function with `eval()`. If this function also trains (it was on the stack of a backward
pass), the place is the line with `eval()` itself.
"""

from __future__ import annotations

import re
import weakref
from itertools import islice
from typing import TYPE_CHECKING, Any

from .facts.process_facts import call_frames, is_users, jobs_frames
from .workers.sample_parts import own

if TYPE_CHECKING:
    from types import CodeType

    from ..documents.rank_documents import EvaluationSite

_SITES_MAX = 64  # generated code may have new lines without end
_MODELS_MAX = 64  # a job may build new models without end
_OPTIMIZERS_MAX = 4
_DEPTH_MAX = 200  # frames of a stack
_HELD_SHARE_MIN = 0.5  # of the optimizer's parameters; a frozen backbone, a teacher or averaged weights hold none
# Functions with these names run the model in `eval()` mode to make its training data.
_COLLECTS = re.compile(
    r"(?:^|_)(?:rollout\w*|roll|collect\w*|explor\w*|play\w*|self_?play|generat\w*|sampl\w*|act|acts|env|episode\w*|pseudo\w*|label\w*)(?:_|$)",
    re.IGNORECASE,
)


class Evaluations:
    """Evaluations of the training model. `sites`: the places where the loop evaluates."""

    def __init__(self) -> None:
        self.sites: dict[tuple[str, int], EvaluationSite] = {}
        # ids of the parameters of each optimizer, by its id and number of groups
        self._held: dict[tuple[int, int], tuple[weakref.ref[Any], frozenset[int]]] = {}
        # id of a module -> True if it is a training model
        self._known: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self.model: weakref.ref[Any] | None = None  # of the latest evaluation
        self._loop: frozenset[CodeType] = frozenset()

    def facts(self) -> list[EvaluationSite]:
        return list(self.sites.values())

    def trains(self, optimizer: Any) -> None:
        """Records an optimizer's parameters, at a first step and occasionally later, since the job may use several optimizers."""
        if not hasattr(optimizer, "__weakref__"):
            return  # an object that imitates an optimizer
        key = id(optimizer), len(optimizer.param_groups)
        known = self._held.pop(key, None)
        if known is not None and known[0]() is optimizer:
            self._held[key] = known
            return
        if len(self._held) >= _OPTIMIZERS_MAX:
            self._held.pop(next(iter(self._held)))
        held = frozenset(id(p) for group in optimizer.param_groups for p in group["params"])
        self._held[key] = weakref.ref(optimizer), held
        self._known.clear()

    def loop_runs(self) -> None:
        """Records the functions on the stack of a backward pass. Called at a few backward passes."""
        self._loop = frozenset(frame.f_code for frame in islice(jobs_frames(2), _DEPTH_MAX))

    def starts(self, module: Any) -> bool:
        """True if an evaluation begins with putting this module into `eval()` mode. Records its place."""
        if not self._held or not self._is_model(module):
            return False
        frame, _ = call_frames(2)
        if frame is not None and _COLLECTS.search(frame.f_code.co_name):
            return False
        self.model = weakref.ref(module)
        self._note_site()
        return True

    def goes_on(self) -> bool:
        """True if the model is still in `eval()` mode."""
        model = None if self.model is None else self.model()
        return model is not None and own(model).get("training") is False

    def trains_so(self) -> None:
        """Called at a backward pass in `eval()` mode: this model's mode is no sign of evaluation. Drops all recorded places."""
        if self.model is not None:
            self._known[id(self.model())] = (self.model, False)
            self.sites.clear()

    def _is_model(self, module: Any) -> bool:
        known = self._known.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        if len(self._known) >= _MODELS_MAX:
            return False
        parameters = _parameters_of(module)
        answer = any(len(held & parameters) >= max(1, _HELD_SHARE_MIN * len(held)) for _, held in self._held.values())
        self._known[id(module)] = (weakref.ref(module), answer)
        return answer

    def _note_site(self) -> None:
        own = (frame for frame in islice(jobs_frames(3), _DEPTH_MAX) if is_users(frame.f_code.co_filename))
        switch, caller = next(own, None), next(own, None)
        frame = switch if caller is None or (switch is not None and switch.f_code in self._loop) else caller
        if frame is None:
            return
        place = frame.f_code.co_filename, frame.f_lineno
        if place not in self.sites and len(self.sites) >= _SITES_MAX:
            return
        site = self.sites.setdefault(place, {"file": place[0], "line": place[1], "count": 0})
        site["count"] += 1


def _parameters_of(module: Any) -> set[int]:
    """Ids of the parameters of a module and its submodules, without calling any of their methods."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = [module]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        values = own(part)
        found.update(id(p) for p in (values.get("_parameters") or {}).values() if p is not None)
        todo += (values.get("_modules") or {}).values()
    return found
