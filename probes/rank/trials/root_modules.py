"""Changes of the model that trains: a call that takes it before its first forward pass, and contexts around its forward passes.

The models are the outermost modules that run in training mode, with gradients, before the first backward pass. They are found by a wrapper
of `Module.__call__`, which is gone from the first backward pass on, and before dynamo compiles one of them.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from _thread import get_ident
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..patches.wrappers import around, asks_dynamo, quietly
from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import own
from ..workers.sample_standins import put
from .torch_names import named, value_of
from .trial_request import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder
    from .trial_request import Change, Outcomes

_ROOTS_MAX = 8  # models of one job: an encoder and a decoder, a generator and a discriminator
_COMPILE = "torch.compile"
_COMPILED = "_compiled_call_impl"
_OF_MODEL = "model."
_FORMAT = "memory_format"
_DIMENSIONS = {"torch.channels_last": 4, "torch.channels_last_3d": 5}


class EnteredContext:
    """A `context` of a request. `on`: forward passes enter it."""

    def __init__(self, index: int, change: Change) -> None:
        self.index = index
        self.on = False
        self.proven = False  # a forward pass has ended in it
        self._call = str(change["call"])
        self._positional = [value_of(each) for each in change.get("positional") or ()]
        self._arguments = {name: value_of(value) for name, value in (change.get("arguments") or {}).items()}
        self.manager = named(self._call)
        # the job's loss would be computed inside it: torch.autocast computes losses in float32
        self.widens = self._call.rpartition(".")[2] == "autocast"

    def enter(self) -> Any:
        return self.manager(*self._positional, **self._arguments)


class ChangedModel:
    """A `model` of a request: torch.compile, or a method of the model."""

    def __init__(self, index: int, change: Change) -> None:
        self.index = index
        self.call = str(change["call"])
        self._positional = [value_of(each) for each in change.get("positional") or () if not _is_model(each)]
        self._arguments = {name: value_of(value) for name, value in (change.get("arguments") or {}).items()}
        if self.call != _COMPILE and not self.call.startswith(_OF_MODEL):
            raise Refused("%s is no method of a model" % self.call)
        source: Any = (change.get("arguments") or {}).get(_FORMAT)
        # inputs of so many dimensions get the format that the model gets
        self.dimensions = _DIMENSIONS.get(str(source.get("source")), 0) if isinstance(source, dict) else 0
        self.format = self._arguments.get(_FORMAT) if self.dimensions else None

    def make(self, model: Any) -> None:
        if self.call == _COMPILE:
            if _is_compiled(model):
                raise Refused("the model is compiled by now")
            model.compile(*self._positional, **self._arguments)
        else:
            getattr(model, self.call[len(_OF_MODEL) :])(*self._positional, **self._arguments)


def _is_compiled(model: Any) -> bool:
    return own(model).get(_COMPILED) is not None or hasattr(model, "_orig_mod")


def _is_model(argument: Any) -> bool:
    return isinstance(argument, dict) and argument.get("source") == "model"


class RootModules:
    """The trained models of a process and what is changed of them."""

    def __init__(self, recorder: Recorder, outcomes: Outcomes) -> None:
        self._recorder, self._outcomes = recorder, outcomes
        self._torch = recorder.torch
        self.contexts: list[EnteredContext] = []
        self.changes: list[ChangedModel] = []
        self._roots: list[weakref.ref[Any]] = []
        self._given: list[
            tuple[weakref.ref[Any], ChangedModel]
        ] = []  # formats that models got before they were wrapped
        self._inside: set[int] = set()  # threads that run a module
        self._undo: list[Callable[[], None]] = []

    def install(self) -> list[Any]:
        """Looks for the models from now on, if anything is to be changed. Returns the wrappers."""
        if not self.contexts and not self.changes:
            return []
        module = self._torch.nn.Module
        wrapper = self._finding(vars(module)["__call__"])
        self._undo.append(put(module, "__call__", wrapper))
        wrappers = [wrapper]
        if any(each.dimensions for each in self.changes) and self._torch.distributed.is_available():
            ddp = self._torch.nn.parallel.DistributedDataParallel
            ddp.__init__ = around(self._recorder, ddp.__init__, self._is_wrapped, _nothing)
            wrappers.append(ddp.__init__)
        return wrappers

    def found_all(self) -> None:
        """Called at the first backward pass."""
        while self._undo:
            self._undo.pop()()
        if not self._roots:
            self._refuse_all("no module ran in training mode before the first backward pass")

    def _refuse_all(self, reason: str) -> None:
        for index in [*(each.index for each in self.changes), *(each.index for each in self.contexts)]:
            self._outcomes.refused(index, reason)

    def _finding(self, original: Callable[..., Any]) -> Any:
        recorder, inside, undo = self._recorder, self._inside, self._undo
        is_compiling = asks_dynamo(recorder)

        @wraps(original)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            # the job may have kept the wrapper, as torch.compile does
            if is_compiling() or not undo:
                return original(module, *args, **kwargs)
            thread = get_ident()
            try:
                if thread in inside:
                    return original(module, *args, **kwargs)
                inside.add(thread)
                try:
                    made = quietly(recorder, self._may_be_root, module)
                    if not made:
                        return original(module, *args, **kwargs)
                    return self._first_call(original, module, args, kwargs, made)
                finally:
                    inside.discard(thread)
            except BaseException as error:
                hide_frame(error)
                raise

        return __call__

    def _may_be_root(self, module: Any) -> list[ChangedModel]:
        """Changes the module if it is one that trains. Returns the changes that its first forward pass has to prove."""
        if self._recorder.worker is not None or not self._trains(module) or len(self._roots) >= _ROOTS_MAX:
            return []
        if any(each() is module for each in self._roots):
            return []
        self._roots.append(weakref.ref(module))
        if isinstance(module, self._torch.jit.ScriptModule):
            self._refuse_all("the model is a scripted one")
            return []
        made = [each for each in self.changes if self._make(each, module)]
        formats = [each for each in self.changes if each.dimensions and not self._outcomes.is_refused(each.index)]
        if self.contexts or formats:
            self._enclose(module, formats)
        compiled = [each for each in made if each.call == _COMPILE]
        if _is_compiled(
            module
        ):  # dynamo must not meet the wrapper: code compiled with it would be compiled again without
            while self._undo:
                self._undo.pop()()
        return compiled

    def _trains(self, module: Any) -> bool:
        if not getattr(module, "training", False) or not self._torch.is_grad_enabled():
            return False
        return any(each.requires_grad for each in self._torch.nn.Module.parameters(module))

    def _make(self, change: ChangedModel, module: Any) -> bool:
        inner = own(module).get("_modules", {}).get("module")
        if any(each() is inner and given is change for each, given in self._given if inner is not None):
            self._outcomes.applied(change.index)
            return False
        try:
            change.make(module)
        except Exception as error:
            reraise_signal_exception()
            self._outcomes.refused(change.index, error)
            return False
        if change.call != _COMPILE:  # compiled code is proven by the first call
            self._outcomes.applied(change.index)
        return True

    def _is_wrapped(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before DistributedDataParallel lays out its buckets, which follow the strides of the parameters."""
        model = args[1] if len(args) > 1 else kwargs["module"]
        for change in self.changes:
            if change.dimensions:
                change.make(model)
                self._given.append((weakref.ref(model), change))

    def _first_call(
        self, original: Callable[..., Any], module: Any, args: Any, kwargs: Any, compiled: list[ChangedModel]
    ) -> Any:
        """The first forward pass of a compiled model. If it fails, the model runs as it was."""
        state = _random_state(self._torch)
        try:
            result = original(module, *args, **kwargs)
        except Exception as error:
            object.__setattr__(module, _COMPILED, None)
            for each in compiled:
                self._outcomes.refused(each.index, error)
        else:
            for each in compiled:
                self._outcomes.applied(each.index)
            return result
        state()
        return original(module, *args, **kwargs)

    def _enclose(self, module: Any, formats: list[ChangedModel]) -> None:
        """Lets this module's forward passes run in the contexts that are on, outside of compiled code.

        It gets a forward of its own, a method, so that a copy of the module has it, too, and a pickled one has its class's.
        """
        compiled: Any = own(module).get(_COMPILED)
        before: Any = own(module).get("forward")
        is_compiling = asks_dynamo(self._recorder)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._pass(compiled, formats, args, kwargs)

        @wraps(type(module).forward)
        def forward(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # the job has compiled what calls the model
                return before(*args, **kwargs) if before is not None else type(self_).forward(self_, *args, **kwargs)
            run = before if before is not None else types.MethodType(type(self_).forward, self_)
            return self._pass(run, formats, args, kwargs)

        if compiled is not None:
            object.__setattr__(module, _COMPILED, call)
        else:
            object.__setattr__(module, "forward", types.MethodType(forward, module))

    def _pass(self, run: Callable[..., Any], formats: list[ChangedModel], args: Any, kwargs: Any) -> Any:
        try:
            for each in formats:
                args = tuple(_formatted(self._torch, value, each) for value in args)
                kwargs = {name: _formatted(self._torch, value, each) for name, value in kwargs.items()}
            return self._run([each for each in self.contexts if each.on], run, args, kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def _run(self, on: list[EnteredContext], run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A forward pass in these contexts. The first one of a context that fails leaves it, and is done again without."""
        new = [each for each in on if not each.proven]
        if not new:
            return _in_contexts(self._torch, on, run, args, kwargs)
        state = _random_state(self._torch)
        try:
            result = _in_contexts(self._torch, on, run, args, kwargs)
        except Exception as error:
            reraise_signal_exception()
            for each in new:
                each.on = False
                self._outcomes.refused(each.index, error)
        else:
            for each in new:
                each.proven = True
                self._outcomes.applied(each.index)
            return result
        state()
        return _in_contexts(self._torch, [each for each in on if each.on], run, args, kwargs)


def _in_contexts(torch: Any, on: list[EnteredContext], run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if not on:
        return run(*args, **kwargs)
    with contextlib.ExitStack() as stack:
        for each in on:
            stack.enter_context(each.enter())
        result = run(*args, **kwargs)
    return _widened(torch, result) if any(each.widens for each in on) else result


def _widened(torch: Any, result: Any) -> Any:
    """The outputs in float32: the loss that the job computes from them would be, too."""
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype in (torch.bfloat16, torch.float16) else result
    kind = type(result)
    if kind in (tuple, list):
        return kind([_widened(torch, each) for each in result])
    if kind is dict:
        return {name: _widened(torch, each) for name, each in result.items()}
    return result


def _formatted(torch: Any, value: Any, change: ChangedModel) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == change.dimensions:
        return value.to(memory_format=change.format)
    return value


def _random_state(torch: Any) -> Callable[[], None]:
    """A function that puts the generators back to where they are now. Neither raises."""
    states: list[tuple[Callable[[Any], None], Any]] = []
    try:
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state, torch.cuda.get_rng_state()))
    except Exception:
        reraise_signal_exception()  # a graph is captured: the device's state stays

    def put_back() -> None:
        for put_state, state in states:
            try:
                put_state(state)
            except Exception:
                reraise_signal_exception()

    return put_back


def _nothing(_: Any) -> None:
    """Nothing is to be done after the model was wrapped."""
