"""What an optimizer steps and keeps on one device, in bytes: parameters, their gradients, its own state.

Looked at in the first steps, and once more when the process ends for want of the GPU's memory. Objects of the job are only read.
"""

from __future__ import annotations

from typing import Any

from ..raised_exceptions import device_named
from ..workers.sample_parts import own
from .layer_facts import layout_of, plain

_TENSORS_MAX = 20_000  # 5 us each
_FRAMES_MAX = 50
_NAMES_MAX = 1000  # of one frame
_SUMS = ("elements", "parameter_bytes", "learning_bytes", "gradient_bytes", "state_bytes")


def describe_optimizer(optimizer: Any) -> dict[str, Any]:
    group = optimizer.param_groups[0]
    return {
        "class": type(optimizer).__qualname__,
        "foreach": group.get("foreach"),
        "fused": group.get("fused"),
        "groups": len(optimizer.param_groups),
        "parameters": sum(len(g["params"]) for g in optimizer.param_groups),
    }


def describe_convolutions(torch: Any, optimizer: Any) -> dict[str, Any]:
    """Types and layouts of its weights of four dimensions, as they lie there: of a model that is compiled nothing else shows them.

    Empty where parameters are shards, flat ones among them: of what they are parts of nothing is known.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    whole = [p for p in parameters if p.dim() > 1]
    if not whole or len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    weights = [p for p in whole if p.dim() == 4]
    layouts = [layout_of(torch, weight) for weight in weights]
    found = {
        "weights": len(weights),
        "dtypes": sorted({plain(weight.dtype) for weight in weights}),
        "channels_last": layouts.count("channels_last"),
        "channels_first": layouts.count("channels_first"),
    }
    return {"convolutions": found}


def describe_holdings(optimizer: Any, device: str = "") -> dict[str, Any]:
    """What lies on this device, else on the one with most of it.

    Empty where parameters are shards of something larger, or too many: then their sizes are not this rank's memory.
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


def held_at_end(torch: Any, error: BaseException, device: str = "") -> dict[str, Any]:
    """Of the optimizers that the frames of an uncaught exception know, and of their largest model. Empty: they know neither.

    `device`: the one watched, where the exception names none.
    """
    device = device_named(str(error)) or device
    optimizers, models = _known(torch, error)
    found: dict[str, Any] = {}
    each = [describe_holdings(optimizer, device) for optimizer in optimizers]
    if each and all(each):
        found = {**each[0], **{name: sum(told[name] for told in each) for name in (*_SUMS, "momentum")}}
        found["class"] = type(optimizers[0]).__qualname__
    weights = [list(model.parameters()) for model in models]
    whole = [held for held in (_held(each, device) for each in weights) if held]
    if whole:
        largest = max(whole, key=lambda told: int(told["parameter_bytes"]))
        found = found or {**largest, "parameter_bytes": largest["learning_bytes"]}
        found["model_bytes"] = largest["parameter_bytes"]
    return found


def _known(torch: Any, error: BaseException) -> tuple[list[Any], list[Any]]:
    """Optimizers and models among the variables of these frames, and what an object keeps whose method one of them is."""
    optimizers: dict[int, Any] = {}
    models: dict[int, Any] = {}
    traceback, frames = error.__traceback__, 0
    while traceback is not None and frames < _FRAMES_MAX:
        known = traceback.tb_frame.f_locals
        for value in [*list(known.values())[:_NAMES_MAX], *list(own(known.get("self")).values())[:_NAMES_MAX]]:
            if isinstance(value, torch.optim.Optimizer):
                optimizers[id(value.param_groups)] = value  # once, also where another one stands around it
            elif isinstance(value, torch.nn.Module):
                models[id(value)] = value
        traceback, frames = traceback.tb_next, frames + 1
    return list(optimizers.values()), list(models.values())


def _held(parameters: list[Any], device: str) -> dict[str, Any]:
    if len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    by_device: dict[str, dict[str, Any]] = {}
    for parameter in parameters:
        place = str(parameter.device)
        found = by_device.get(place)
        if found is None:
            found = by_device[place] = {"device": place, **dict.fromkeys(_SUMS, 0)}
        found["elements"] += parameter.numel()
        found["parameter_bytes"] += _bytes(parameter)
        if parameter.requires_grad:
            found["learning_bytes"] += _bytes(parameter)
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            found["gradient_bytes"] += _bytes(gradient)
    if device:
        return by_device.get(device) or {"device": device, **dict.fromkeys(_SUMS, 0)}
    return max(by_device.values(), key=lambda told: int(told["parameter_bytes"]), default={})


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
