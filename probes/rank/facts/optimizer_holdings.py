"""Where an optimizer was made, and the bytes that it updates and keeps on one device: parameters, gradients, optimizer state.

Bytes are read in the first steps, and again when the process ends with a GPU out-of-memory error. Objects of the job are only read.
"""

from __future__ import annotations

import weakref
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..raised_exceptions import device_named
from ..workers.sample_parts import own
from .layer_facts import layout_of, plain
from .process_facts import call_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from ...documents.code_places import CodePlace
    from ...documents.model_documents import ConvolutionWeights, HeldMemory, OptimizerFacts

    Sum = Literal["elements", "parameter_bytes", "learning_bytes", "gradient_bytes", "state_bytes", "momentum"]

_MADE_MAX = 64  # a job may keep making optimizers
_TENSORS_MAX = 20_000  # 5 us per tensor
_NO_SETTINGS = ("params", "param_names")  # of a group
_FRAMES_MAX = 50
_NAMES_MAX = 1000  # per frame
_SUMS: tuple[Sum, ...] = ("elements", "parameter_bytes", "learning_bytes", "gradient_bytes", "state_bytes", "momentum")


class OptimizerPlaces:
    """The lines of the job that made its optimizers."""

    def __init__(self) -> None:
        self._made: list[tuple[weakref.ref[Any], CodePlace]] = []

    def made(self, optimizer: Any) -> None:
        """Called when an optimizer was made."""
        if len(self._made) < _MADE_MAX:
            file, line = call_site()
            self._made.append((weakref.ref(optimizer), {"file": file, "line": line}))

    def known(self) -> Iterator[Any]:
        """Those that still exist."""
        return (optimizer for made, _ in self._made if (optimizer := made()) is not None)

    def of(self, optimizer: Any) -> CodePlace:
        """Empty for an optimizer of another library, or one unpickled."""
        unknown: CodePlace = {}
        return next((place for made, place in self._made if made() is optimizer), unknown)


def describe_optimizer(optimizer: Any) -> OptimizerFacts:
    group = optimizer.param_groups[0]
    gradients = (p.grad for g in optimizer.param_groups for p in g["params"])
    return {
        "class": type(optimizer).__qualname__,
        "module": type(optimizer).__module__,
        "foreach": group.get("foreach"),
        "fused": group.get("fused"),
        "groups": len(optimizer.param_groups),
        "settings": _settings(optimizer.param_groups),
        "parameters": sum(len(g["params"]) for g in optimizer.param_groups),
        "sparse": any(g is not None and g.is_sparse for g in islice(gradients, _TENSORS_MAX)),
    }


def _settings(groups: list[dict[str, Any]]) -> int:
    """How many different settings these groups have: groups of the same ones could be one."""
    return len(
        {
            frozenset((name, _comparable(value)) for name, value in group.items() if name not in _NO_SETTINGS)
            for group in islice(groups, _TENSORS_MAX)
        }
    )


def _comparable(value: Any) -> Any:
    """Numbers and texts by their value; others, such as a learning rate in a tensor, are the same only as the same object."""
    values = value if isinstance(value, tuple) else (value,)
    return value if all(isinstance(each, (int, float, str, type(None))) for each in values) else id(value)


def describe_convolutions(torch: Any, optimizer: Any) -> OptimizerFacts:
    """Types and memory layouts of the optimizer's 4-D weights: the only source for a compiled model.

    Empty for sharded or flat parameters, whose full shapes are unknown.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    whole = [p for p in parameters if p.dim() > 1]
    if not whole or len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    weights = [p for p in whole if p.dim() == 4]
    layouts = [layout_of(torch, weight) for weight in weights]
    found: ConvolutionWeights = {
        "weights": len(weights),
        "dtypes": sorted({plain(weight.dtype) for weight in weights}),
        "channels_last": layouts.count("channels_last"),
        "channels_first": layouts.count("channels_first"),
    }
    return {"convolutions": found}


def describe_holdings(optimizer: Any, device: str = "") -> HeldMemory:
    """Bytes on this device, or on the device with the most parameter bytes.

    Empty for sharded parameters, whose sizes are not this rank's memory, and for too many parameters.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found = _held(parameters, device)
    if found:
        state = optimizer.state
        for parameter in parameters:
            keeps = state.get(parameter) if str(parameter.device) == found["device"] else None
            for kept in keeps.values() if isinstance(keeps, dict) else ():
                if hasattr(kept, "element_size") and kept.device == parameter.device:
                    found["state_bytes"] += _bytes(kept)
        found["momentum"] = int(bool(optimizer.param_groups[0].get("momentum")))
    return found


def held_at_end(torch: Any, error: BaseException, device: str = "") -> HeldMemory:
    """Holdings of the optimizers, and of the largest model, in the frames of an uncaught exception. Empty if there are none.

    `device`: the recorded device, for exceptions that name none.
    """
    device = device_named(str(error)) or device
    optimizers, models = _known(torch, error)
    found: HeldMemory = {}
    each = [describe_holdings(optimizer, device) for optimizer in optimizers]
    if each and all(each):
        found = {**each[0]}
        for name in _SUMS:
            found[name] = sum(holdings[name] for holdings in each)
        found["class"] = type(optimizers[0]).__qualname__
    weights = [list(model.parameters()) for model in models]
    whole = [held for held in (_held(each, device) for each in weights) if held]
    if whole:
        largest = max(whole, key=lambda holdings: holdings["parameter_bytes"])
        found = found or {**largest, "parameter_bytes": largest["learning_bytes"]}
        found["model_bytes"] = largest["parameter_bytes"]
    return found


def _known(torch: Any, error: BaseException) -> tuple[list[Any], list[Any]]:
    """Optimizers and models among the variables of the error's frames and the attributes of their `self` objects."""
    optimizers: dict[int, Any] = {}
    models: dict[int, Any] = {}
    traceback, frames = error.__traceback__, 0
    while traceback is not None and frames < _FRAMES_MAX:
        known = traceback.tb_frame.f_locals
        for value in [*list(known.values())[:_NAMES_MAX], *list(own(known.get("self")).values())[:_NAMES_MAX]]:
            if isinstance(value, torch.optim.Optimizer):
                optimizers[id(value.param_groups)] = value  # counted once, even if another optimizer wraps it
            elif isinstance(value, torch.nn.Module):
                models[id(value)] = value
        traceback, frames = traceback.tb_next, frames + 1
    return list(optimizers.values()), list(models.values())


def _held(parameters: list[Any], device: str) -> HeldMemory:
    if len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    by_device: dict[str, HeldMemory] = {}
    for parameter in parameters:
        place = str(parameter.device)
        found = by_device.get(place)
        if found is None:
            found = by_device[place] = _no_holdings(place)
        found["elements"] += parameter.numel()
        found["parameter_bytes"] += _bytes(parameter)
        if parameter.requires_grad:
            found["learning_bytes"] += _bytes(parameter)
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            found["gradient_bytes"] += _bytes(gradient)
    if device:
        return by_device.get(device) or _no_holdings(device)
    if not by_device:
        return {}
    return max(by_device.values(), key=lambda holdings: holdings["parameter_bytes"])


def _no_holdings(device: str) -> HeldMemory:
    return {
        "device": device,
        "elements": 0,
        "parameter_bytes": 0,
        "learning_bytes": 0,
        "gradient_bytes": 0,
        "state_bytes": 0,
    }


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
