"""Finds networks that do not learn, and whether their calls in the training thread get the same inputs again: then so do their outputs.

They are met in the few steps in which `Precision` patches layers. From then on the `forward` of their class is wrapped: in some of the
calls it reads a few numbers of the inputs' rows. Networks whose weights change (a teacher that follows the student), that draw random
numbers, or of which a part is in `train()` mode are dropped. Only tensors on the CPU are read, and nothing is written or kept.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..backward.unused_gradients import state_of
from ..facts.precision_facts import compiled_frames, is_observed, leave_to_dynamo
from ..facts.process_facts import frames_from, is_users
from ..hidden_frames import hide_frame
from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import own
from ..workers.sample_standins import put
from .repeated_inputs import RepeatedInputs, row_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from ...documents.model_documents import FrozenNetwork
    from ..recorder import Recorder

NETWORKS_MAX = 2  # at a time: an image and a text encoder, say
WATCHED_MAX = 8  # in all
EXAMINED_MAX = 200  # layers and networks, each once
LOOKS_MAX = 2_000  # calls; without a repeated row among the latest ones by then, none follows
# Interval in multiples of what a look takes (60 to 100 us, in cold caches 600): of the first ones, which are to see
# most of an epoch, and of the others.
FIRST, COST_TIMES = 200, (200, 1_000)
EVERY_NS = 20_000_000
SETTLED_EVERY_NS = 1_000_000_000  # once they repeat
FULLY_EVERY = 8  # looks: then the modes of all its parts are checked, and some numbers
_WEIGHTS = 4  # of the largest weights
_ELEMENTS_MIN = 1_000
_MODULES_MAX = 20_000
_UNREAD_MAX = 5  # calls in succession whose inputs cannot be read
_MODULE = "nn/modules/module.py"


def _nothing() -> None:
    pass


class _Watched:
    """A network and what its calls have shown. False once it `ended`: nothing more is read."""

    def __init__(self, networks: FrozenNetworks, torch: Any, network: Any, parameters: list[Any]) -> None:
        self.networks = networks
        self.of = weakref.ref(network)
        self.ended = False
        self.put_back: Callable[[], None] = _nothing  # restores the `forward` of its class
        self.due_ns = self.unread = 0
        self.inputs = RepeatedInputs()
        self.facts: FrozenNetwork = {}
        self._weights = [weakref.ref(p) for p in sorted(parameters, key=lambda p: -p.numel())[:_WEIGHTS]]
        self._state = self._read(torch)

    def __bool__(self) -> bool:
        return not self.ended

    def __reduce__(self) -> Any:
        """False, too, where the job pickles its class by value, with the wrapper in it: there nothing of this may be needed."""
        return bool, ()

    def begin(self, network: Any, args: Any, kwargs: Any) -> Any:
        return self.networks.begin(self, network, args, kwargs)

    def finish(self, looked: Any) -> None:
        self.networks.finish(self, looked)

    def hide(self, error: BaseException) -> None:
        hide_frame(error)

    def end(self) -> None:
        self.ended = True
        self.put_back()

    def changed(self, torch: Any) -> bool:
        """True if its largest weights are not what they were."""
        return self._read(torch) != self._state

    def _read(self, torch: Any) -> list[Any]:
        weights = (of() for of in self._weights)
        return [None if weight is None else state_of(torch, weight) for weight in weights]


class FrozenNetworks:
    """Those of one process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._torch = recorder.torch
        self._undo: list[Callable[[], None]] = []
        self._watched: list[_Watched] = []
        self._known: set[int] = set()  # ids of layers and networks that were examined
        self._ended = False  # nothing more is examined

    def forget(self) -> None:
        """Resets in a new or forked process."""
        for watched in reversed(self._watched):
            watched.end()
        while self._undo:
            self._undo.pop()()
        self._watched, self._known, self._ended = [], set(), False

    def layer_called(self, layer: Any) -> None:
        """Called in the forward pass of a layer, in the few steps in which layers are patched. Never raises for what they are."""
        if self._ended or len(self._known) >= EXAMINED_MAX or id(layer) in self._known:
            return
        if len(self._watched) >= WATCHED_MAX:
            return
        if sum(not watched.ended for watched in self._watched) >= NETWORKS_MAX:
            return
        weight = own(layer)["_parameters"].get("weight")
        records = self._torch.is_grad_enabled()
        if records and (weight is None or weight.requires_grad):
            return
        self._known.add(id(layer))
        try:
            self._examine(sys._getframe(1), records=records)
        except Exception:  # a class of modules that keeps its parts otherwise
            reraise_signal_exception()
            self._ended = True

    def _examine(self, frame: FrameType, *, records: bool) -> None:
        for network in reversed(list(_called(frame))):
            if id(network) in self._known:
                if any(watched.of() is network for watched in self._watched):
                    return
                continue
            self._known.add(id(network))
            parameters = self._frozen(network, records=records)
            if parameters is not None and self._watch(network, parameters):
                return

    def _frozen(self, network: Any, *, records: bool) -> list[Any] | None:
        """Its parameters if none of them learns and no part of it is in `train()` mode; else None."""
        if compiled_frames():
            return None
        updated = self._recorder.passes.unused.updated()
        parameters = []
        for part in _parts(network):
            if part.get("training") is not False:
                return None
            parameters += [p for p in (part.get("_parameters") or {}).values() if p is not None]
        learns = any(id(p) in updated or p.device.type != "cpu" or (records and p.requires_grad) for p in parameters)
        return None if learns or sum(p.numel() for p in parameters) < _ELEMENTS_MIN else parameters

    def _watch(self, network: Any, parameters: list[Any]) -> bool:
        owner = type(network)
        original = getattr(owner, "forward", None)
        # a compiled or scripted module has none that is written in Python, or one of its own
        if not isinstance(original, types.FunctionType) or "forward" in own(network):
            return False
        watched = _Watched(self, self._torch, network, parameters)
        watched.facts["class"] = owner.__qualname__[:200]
        watched.facts["forward"] = _function(original)
        wrapper = functools.wraps(original)(self._wrapper(original, watched))
        wrapper.__annotations__ = {}
        watched.put_back = put(owner, "forward", wrapper)
        self._watched.append(watched)
        forget = leave_to_dynamo([watched.end], _nothing)
        if forget is not None:
            self._undo.append(forget)
        return True

    def _wrapper(self, original: Any, watched: _Watched) -> Any:
        tracing = self._torch.compiler.is_compiling

        def forward(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if tracing() or not watched:
                return original(self_, *args, **kwargs)
            looked = watched.begin(self_, args, kwargs)
            try:
                result = original(self_, *args, **kwargs)
            except BaseException as error:
                watched.hide(error)
                raise
            if looked is not None:
                watched.finish(looked)
            return result

        # as in `Precision`: TorchScript resolves the original's names in these globals
        return types.FunctionType(
            forward.__code__, getattr(original, "__globals__", {}), forward.__name__, None, forward.__closure__
        )

    def begin(self, watched: _Watched, network: Any, args: Any, kwargs: Any) -> tuple[int, Any] | None:
        """Reads a call's inputs if that is due. Returns what it cost (ns) and the state of torch's random numbers, or None."""
        if watched.of() is not network:
            return None
        began = perf_counter_ns()
        if began < watched.due_ns:
            return None
        try:
            if not self._in_training_thread() or _observed(self._torch):
                return None
            with self._torch._C.DisableTorchFunction():
                if not self._look(watched, network, (args, kwargs)):
                    watched.due_ns = began + _interval_ns(watched, perf_counter_ns() - began)
                    return None
                state = self._torch.default_generator.get_state()
            self._place(watched, sys._getframe(3))
            return perf_counter_ns() - began, state
        except Exception:
            reraise_signal_exception()
            self._drop(watched)
            return None

    def _look(self, watched: _Watched, network: Any, given: Any) -> bool:
        """True if the inputs could be read and the network is as it was."""
        inputs = watched.inputs
        marks = row_marks(self._torch, given)
        watched.unread = watched.unread + 1 if marks is None else 0
        if marks is not None:
            inputs.add(marks)
        fully = inputs.calls % FULLY_EVERY == 0 and marks is not None
        changed = own(network).get("training") is not False or (fully and _learns_anew(self._torch, watched, network))
        if changed or watched.unread >= _UNREAD_MAX:
            self._drop(watched)
        return not changed and marks is not None

    def finish(self, watched: _Watched, looked: tuple[int, Any]) -> None:
        """Called after such a call."""
        began = perf_counter_ns()
        try:
            cost, state = looked
            torch = self._torch
            with torch._C.DisableTorchFunction():
                if not torch.equal(state, torch.default_generator.get_state()):
                    self._drop(watched)  # its outputs differ
                    return
            inputs = watched.inputs
            self._note(watched)
            if inputs.calls >= LOOKS_MAX and not inputs.seen:
                self._drop(watched)
            now = perf_counter_ns()
            cost += now - began
            self._recorder.account.self_ns += cost
            watched.due_ns = now + _interval_ns(watched, cost)
        except Exception:
            reraise_signal_exception()
            self._drop(watched)

    def _place(self, watched: _Watched, frame: FrameType) -> None:
        called = next((each for each in frames_from(frame) if is_users(each.f_code.co_filename)), None)
        if called is not None:
            watched.facts["file"], watched.facts["line"] = called.f_code.co_filename, called.f_lineno

    def _note(self, watched: _Watched) -> None:
        inputs = watched.inputs
        watched.facts.update(
            {
                "calls": inputs.calls,
                "rows": inputs.rows,
                "seen": inputs.seen,
                "different": inputs.different,
                "alike": round(inputs.alike, 4),
                "repeats": inputs.repeat(),
            }
        )
        found = self._recorder.facts.values.setdefault("frozen_networks", [])
        if not any(each is watched.facts for each in found):
            found.append(watched.facts)  # written with the other facts

    def _in_training_thread(self) -> bool:
        account = self._recorder.account
        return account is not None and account.thread == get_ident()

    def _drop(self, watched: _Watched) -> None:
        """Ends the looks at a network of which nothing is to be said."""
        watched.ended = True
        for each in reversed(self._watched):  # of two networks of a class, the last wrapper goes first
            if each.ended:
                each.put_back()
        found = self._recorder.facts.values.get("frozen_networks", [])
        found[:] = [each for each in found if each is not watched.facts]


def _interval_ns(watched: _Watched, cost_ns: int) -> int:
    """Time to the next look, by what this one took."""
    least = SETTLED_EVERY_NS if watched.inputs.repeat() else EVERY_NS
    return max(least, COST_TIMES[watched.inputs.calls >= FIRST] * cost_ns)


def _learns_anew(torch: Any, watched: _Watched, network: Any) -> bool:
    """True if some of its weights changed, or a part of it was put into `train()` mode."""
    return watched.changed(torch) or any(part.get("training") is not False for part in _parts(network))


def _called(frame: FrameType) -> Iterator[Any]:
    """The modules whose calls this frame is in, innermost first."""
    for each in frames_from(frame):
        if each.f_code.co_name == "_call_impl" and each.f_code.co_filename.endswith(_MODULE):
            yield each.f_locals.get("self")


def _function(forward: Any) -> str:
    """File and name of the function as stack samples show it: decorators have frames, those of torch's `no_grad` are left out."""
    while forward.__code__.co_filename.endswith("utils/_contextlib.py") and hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    code = forward.__code__
    plain = forward.__qualname__ if forward.__qualname__.endswith(code.co_name) else code.co_name
    return "%s:%s" % (code.co_filename, getattr(code, "co_qualname", plain))


def _parts(network: Any) -> Iterable[dict[str, Any]]:
    """The attributes of a module and of those inside it, each once. Calls nothing that the job may have overridden."""
    todo, known = [network], {id(network)}
    while todo and len(known) <= _MODULES_MAX:
        values: Any = own(todo.pop())
        yield values
        inside = [
            part for part in (values.get("_modules") or {}).values() if part is not None and id(part) not in known
        ]
        known.update(map(id, inside))
        todo += inside


def _observed(torch: Any) -> bool:
    traces = getattr(torch._C, "_get_tracing_state", None)
    return is_observed(torch) or bool(traces is not None and traces())
