"""Options that objects of torch read whenever they work: set on those that the job has made, and taken back.

Of optimizers the implementation of the update, of DistributedDataParallel whether buffers are sent, of embeddings the form of their
gradients, of synchronised norms whether they are synchronised.
"""

from __future__ import annotations

import types
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame, wraps
from ..patches.wrappers import around
from .call_places import CallPlace, class_of_torch
from .torch_names import callables, named, value_of
from .trial_request import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..recorder import Recorder
    from .trial_request import Change, Outcomes

    Undo = Callable[[], Any]

_IMPLEMENTATIONS = ("fused", "foreach")
# By the class of the objects, the arguments of its constructor that are attributes, read anew at each use.
_ATTRIBUTES = {
    "DistributedDataParallel": ("broadcast_buffers", "forward_sync_buffers"),
    "Embedding": ("sparse",),
    "EmbeddingBag": ("sparse",),
}
_CONVERSION = "convert_sync_batchnorm"  # its removal concerns the norms that it makes
_SCALED = "_step_supports_amp_scaling"
_OBJECTS_MAX = 10_000
_ONLY_BY_RESTART = "only by a restart: %s"


class ObjectOptions:
    """A `call` or `removal` that can be made and taken back: the objects that the job has made by this call."""

    def __init__(self, recorder: Recorder, outcomes: Outcomes, index: int, change: Change) -> None:
        """Raises Refused if the change cannot be made of objects that live."""
        self._recorder, self._outcomes, self._index = recorder, outcomes, index
        self._arguments = {name: value_of(value) for name, value in (change.get("arguments") or {}).items()}
        self._place: CallPlace | None = None  # anywhere
        self._made: list[weakref.ref[Any]] = []
        name = str(change["callable"])
        if change["kind"] == "removal":
            if name.rpartition(".")[2] != _CONVERSION:
                raise Refused(_ONLY_BY_RESTART % ("the removal of %s" % name))
            self._kind: Any = named("torch.nn.SyncBatchNorm")
            self._set: Callable[[Any], Undo] = self._without_synchronisation
            return
        found = callables(name)
        self._kind = found[0].original if found else None
        self._place = CallPlace(change.get("file"), change.get("line"))
        self._set = self._setter(name)

    def install(self) -> list[Any]:
        """Notes the objects from now on. Returns the wrappers."""
        kind = self._kind
        kind.__init__ = around(self._recorder, kind.__init__, self._begun, self._ended, raised_too=False)
        return [kind.__init__]

    def switch(self) -> list[Undo]:
        """Sets the options. Returns functions that take them back, to be called in reverse; all or none is set. Raises Refused."""
        alive = [made for reference in self._made if (made := reference()) is not None]
        if not alive:
            raise Refused("the job has made no %s there" % self._kind.__name__)
        undo: list[Undo] = []
        try:
            for made in alive:
                undo.append(self._set(made))
        except BaseException:
            for each in reversed(undo):
                each()
            raise
        return undo

    def _begun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The object, if this constructor is the call that is meant: not that of a class derived from it by torch."""
        made = args[0]
        if (
            self._recorder.worker is not None
            or len(self._made) >= _OBJECTS_MAX
            or class_of_torch(made) is not self._kind
        ):
            return None
        return made if self._place is None or self._place.is_here() else None

    def _ended(self, made: Any) -> None:
        self._made.append(weakref.ref(made))

    # -- how options are set ---------------------------------------------------------------------------------------------------

    def _setter(self, name: str) -> Callable[[Any], Undo]:
        kind, asked = self._kind, set(self._arguments)
        if isinstance(kind, type) and asked:
            if asked <= set(_ATTRIBUTES.get(kind.__name__, ())):
                return self._set_attributes
            if issubclass(kind, named("torch.optim.Optimizer")) and asked <= set(_IMPLEMENTATIONS):
                return self._set_implementation
        raise Refused(_ONLY_BY_RESTART % ("%s of %s" % (", ".join(sorted(asked)), name)))

    def _set_attributes(self, made: Any) -> Undo:
        distributed = self._recorder.torch.distributed
        if "sparse" in self._arguments and distributed.is_available() and distributed.is_initialized():
            raise Refused(
                _ONLY_BY_RESTART % "the form of gradients is agreed on when a model is wrapped for several ranks"
            )
        before = {name: getattr(made, name) for name in self._arguments}
        self._outcomes.applied(self._index)
        _set_all(made, self._arguments)
        return partial(_set_all, made, before)

    def _set_implementation(self, optimizer: Any) -> Undo:
        """The change counts as made once the optimizer has begun an update with it: a captured graph would replay its old one."""
        groups, asked = optimizer.param_groups, {**dict.fromkeys(_IMPLEMENTATIONS), **self._arguments}
        if any(name not in group for group in groups for name in self._arguments):
            raise Refused("this optimizer has no %s form" % ", ".join(self._arguments))
        fused = bool(asked["fused"])
        if fused:
            _check_fused(parameter for group in groups for parameter in group["params"])
        before = [(group, {name: group.get(name) for name in _IMPLEMENTATIONS}) for group in groups]
        scaled = vars(optimizer).get(_SCALED)
        stepped = optimizer.register_step_pre_hook(lambda *_: self._outcomes.applied(self._index))

        def put_back() -> None:
            stepped.remove()
            for group, own in before:
                group.update(own)
            vars(optimizer).pop(_SCALED, None)
            if scaled is not None:
                setattr(optimizer, _SCALED, scaled)
            _place_counts(optimizer)

        try:
            for group in groups:
                group.update(asked)
            # as the constructor of a fused one does, for the scaler of mixed precision
            setattr(optimizer, _SCALED, fused)
            _place_counts(optimizer)
        except BaseException:
            put_back()
            raise
        return put_back

    def _without_synchronisation(self, norm: Any) -> Undo:
        alone = named("torch.nn.modules.batchnorm")._BatchNorm.forward
        before = vars(norm).get("forward")

        @wraps(type(norm).forward)
        def forward(self_: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                self._outcomes.applied(self._index)
                return alone(self_, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        object.__setattr__(norm, "forward", types.MethodType(forward, norm))
        if before is not None:
            return partial(object.__setattr__, norm, "forward", before)
        return partial(object.__delattr__, norm, "forward")


def _set_all(made: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(made, name, value)


def _check_fused(parameters: Any) -> None:
    """Raises Refused where torch would raise in the job's next update."""
    for parameter in parameters:
        if not parameter.is_floating_point():
            raise Refused("its fused form takes no parameters of %s" % parameter.dtype)
        if parameter.grad is not None and parameter.grad.is_sparse:
            raise Refused("its fused form takes no sparse gradients")


def _place_counts(optimizer: Any) -> None:
    """Puts the counts of updates where the implementation wants them: a fused one beside the parameters, others on the host."""
    torch_float32 = named("torch.float32")
    for group in optimizer.param_groups:
        beside = group.get("fused") or group.get("capturable")
        for parameter in group["params"]:
            state = optimizer.state.get(parameter) or {}
            count: Any = state.get("step")
            if not hasattr(count, "device"):
                continue
            device = parameter.device if beside else "cpu"
            dtype = torch_float32 if group.get("fused") else count.dtype
            state["step"] = count.to(device=device, dtype=dtype)
