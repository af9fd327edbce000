"""What an optimizer steps and keeps, in bytes: parameters, their gradients, its own state. Looked at in the first steps only."""

from __future__ import annotations

from typing import Any

_TENSORS_MAX = 20_000  # 3 us each


def describe_holdings(optimizer: Any) -> dict[str, int]:
    """Empty where parameters are shards of something larger, or too many: then their sizes are not this rank's memory."""
    found = {"elements": 0, "parameter_bytes": 0, "gradient_bytes": 0, "state_bytes": 0}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if len(parameters) > _TENSORS_MAX or any(hasattr(p, "to_local") for p in parameters):
        return {}
    state = optimizer.state
    for parameter in parameters:
        found["elements"] += parameter.numel()
        found["parameter_bytes"] += _bytes(parameter)
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse:
            found["gradient_bytes"] += _bytes(gradient)
        own = state.get(parameter)
        for kept in own.values() if isinstance(own, dict) else ():
            if hasattr(kept, "element_size") and kept.device == parameter.device:
                found["state_bytes"] += _bytes(kept)
    return found


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
