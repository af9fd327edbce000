"""What an optimizer steps and keeps, in bytes: parameters, their gradients, its own state.

Looked at in the first steps, and once more when the process ends for want of the GPU's memory. Objects of the job are only read.
"""

from __future__ import annotations

from typing import Any

from .layers import layout_of, plain

_TENSORS_MAX = 20_000  # 3 us each
_FRAMES_MAX = 50
_NAMES_MAX = 1000  # of one frame


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


def describe_holdings(optimizer: Any) -> dict[str, int]:
    """Empty where parameters are shards of something larger, or too many: then their sizes are not this rank's memory."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    found = _held(parameters)
    if found:
        state = optimizer.state
        for parameter in parameters:
            own = state.get(parameter)
            for kept in own.values() if isinstance(own, dict) else ():
                if hasattr(kept, "element_size") and kept.device == parameter.device:
                    found["state_bytes"] += _bytes(kept)
        found["momentum"] = int(bool(optimizer.param_groups[0].get("momentum")))
    return found


def held_at_end(torch: Any, error: BaseException) -> dict[str, Any]:
    """Of the optimizers that the frames of an uncaught exception know, else of their largest model. Empty: they know neither."""
    optimizers: dict[int, Any] = {}
    models: dict[int, Any] = {}
    traceback, frames = error.__traceback__, 0
    while traceback is not None and frames < _FRAMES_MAX:
        for value in list(traceback.tb_frame.f_locals.values())[:_NAMES_MAX]:
            if isinstance(value, torch.optim.Optimizer):
                optimizers[id(value)] = value
            elif isinstance(value, torch.nn.Module):
                models[id(value)] = value
        traceback, frames = traceback.tb_next, frames + 1
    each = [describe_holdings(optimizer) for optimizer in optimizers.values()]
    if each and all(each):
        found: dict[str, Any] = {name: sum(told[name] for told in each) for name in each[0]}
        found["class"] = type(next(iter(optimizers.values()))).__qualname__
        return found
    held = [_held(list(model.parameters())) for model in models.values()]
    return max((told for told in held if told), key=lambda told: told["parameter_bytes"], default={})


def _held(parameters: list[Any]) -> dict[str, int]:
    if len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    found = {"elements": 0, "parameter_bytes": 0, "gradient_bytes": 0, "state_bytes": 0}
    for parameter in parameters:
        found["elements"] += parameter.numel()
        found["parameter_bytes"] += _bytes(parameter)
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            found["gradient_bytes"] += _bytes(gradient)
    return found


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
