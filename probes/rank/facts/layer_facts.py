"""The structure of layers and models: types, memory layouts, counts by kind. Objects of the job are only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..layout import LAYER_KINDS_MAX
from ..workers.sample_parts import own
from .process_facts import frames_from

if TYPE_CHECKING:
    from types import FrameType

    from ...documents.model_documents import ModelFacts

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule", "FullyShardedDataParallel")
_MODULES_MAX = 20_000


def weight_of(layer: Any) -> Any:
    """The stored weight, or the tensor it is computed from if each access recomputes it (spectral norm runs a power iteration)."""
    kept = own(layer)
    found = kept["_parameters"].get("weight")
    if found is None:
        found = kept.get("weight")  # set by a hook, or by FSDP
    if found is None:
        made_of = kept["_modules"]["parametrizations"]._modules["weight"]._parameters
        found = max(made_of.values(), key=lambda parameter: int(parameter.numel()))
    return found


def layout_of(torch: Any, tensor: Any) -> str:
    """Memory layout of a 4-D tensor; `either` if both layouts coincide (one channel, or images of one pixel), empty for other tensors."""
    if tensor.dim() != 4:
        return ""
    last, first = tensor.is_contiguous(memory_format=torch.channels_last), tensor.is_contiguous()
    return "either" if last and first else "channels_last" if last else "channels_first" if first else "other"


def inner_model(model: Any) -> Any:
    """The model inside wrappers for several GPUs, ranks or compilation; the outermost wrapper if they hold none."""
    inner = model
    while type(inner).__name__ in _WRAPPERS:
        held = inner._modules
        inner = next(iter(held.values()), None) if held else None
        if inner is None:
            return model
    return inner


def describe_model(torch: Any, model: Any) -> ModelFacts:
    """Class, number of layers of each kind, and parameters of the outermost module."""
    inner = inner_model(model)
    kinds: dict[str, int] = {}
    for number, module in enumerate(inner.modules()):
        if number >= _MODULES_MAX:
            break
        if not module._modules:
            kinds[type(module).__name__] = kinds.get(type(module).__name__, 0) + 1
    parameters = list(inner.parameters()) or _of_replica(inner)
    layouts = [layout_of(torch, p) for p in parameters if p.dim() == 4]
    often = sorted(kinds.items(), key=lambda item: -item[1])[:LAYER_KINDS_MAX]
    return {
        "class": ("%s.%s" % (type(inner).__module__, type(inner).__qualname__))[:200],
        "wrapped": type(model).__name__ if inner is not model else None,
        "parameters": sum(p.numel() for p in parameters),
        "bytes": _bytes_by_device([*parameters, *inner.buffers()]),
        "dtypes": sorted({plain(p.dtype) for p in parameters}),
        "layers": dict(often),
        "uncached": _generates_uncached(inner),
        "channels_last_weights": layouts.count("channels_last"),
        "channels_first_weights": layouts.count("channels_first"),
    }


def _generates_uncached(model: Any) -> bool:
    """True for a model of transformers whose `generate()` runs it on the whole text for each new word, as its settings say."""
    settings = own(model).get("generation_config")
    return getattr(settings, "use_cache", None) is False


def _of_replica(model: Any) -> list[Any]:
    """Parameters of a DataParallel replica, which holds them as plain tensors."""
    former = (own(module).get("_former_parameters") or {} for module in model.modules())
    return list({id(p): p for held in former for p in held.values()}.values())


def _bytes_by_device(tensors: list[Any]) -> dict[str, int]:
    """Bytes of the tensors by device. Empty for sharded parameters, whose sizes are not this rank's memory."""
    if any(hasattr(tensor, "to_local") for tensor in tensors):
        return {}
    found: dict[str, int] = {}
    for tensor in tensors:
        place = str(tensor.device)
        found[place] = found.get(place, 0) + int(tensor.numel() * tensor.element_size())
    return found


def outermost(frame: FrameType) -> tuple[Any, FrameType]:
    """The outermost module whose call this frame is in, or None, and the frame of its call. Reads only that frame's variables."""
    found = None
    for each in frames_from(frame):
        if each.f_code.co_name == "_call_impl" and each.f_code.co_filename.endswith("nn/modules/module.py"):
            found = each
    return (found.f_locals.get("self"), found) if found is not None else (None, frame)


def autocast_dtype(torch: Any, device: str) -> str | None:
    """The dtype that autocast currently uses on this device type; None if it is off."""
    try:
        return plain(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None
    except TypeError:  # before torch 2.4
        return plain(torch.get_autocast_gpu_dtype()) if device == "cuda" and torch.is_autocast_enabled() else None


def plain(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
