"""Wording of a rank's GPU waits, copies, precision and model, one line each. The lists in the facts are for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.gpu.gpu_pace import WORDS
from rn50_advisor.advisor.model.wording.quantities import number

_SHOWN = 4
_KINDS_SHOWN = 5
_REPLACED = ("syncs", "copies", "conv", "linear", "autocast", "model", "data_parallel")


def with_pace_in_words(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of all ranks with these facts as short texts. Facts of an unknown shape stay unchanged."""
    return {name: _in_words(own) if name.isdigit() and isinstance(own, Mapping) else own for name, own in facts.items()}


def _in_words(facts: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in facts.items() if key not in _REPLACED}
    words = {
        "model": _model(facts.get("model")),
        "computes": _computes(facts),
        "first_convolution": _convolution(facts.get("conv")),
        "waits_for_the_gpu": _waits(facts.get("syncs")),
        "copies_to_the_gpu": _copies(facts),
        "data_parallel": _replicas(facts.get("data_parallel")),
    }
    unknown = {key: facts[key] for key in _REPLACED if key in facts and not _plain(facts[key])}
    return {**rest, **unknown, **{key: text for key, text in words.items() if text and key not in unknown}}


def _plain(value: Any) -> bool:
    """True if the value has the recorder's form: an object, or a list of objects."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, Mapping) for item in value)
    return isinstance(value, Mapping)


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def _model(model: Any) -> str:
    """For example `ResNet, 25.6 M parameters: 53 Conv2d, 53 BatchNorm2d`."""
    if not isinstance(model, Mapping):
        return ""
    layers = model.get("layers")
    kinds = list(layers.items())[:_KINDS_SHOWN] if isinstance(layers, Mapping) else []
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds)
    size = model.get("parameters")
    millions = f", {number(size / 1e6)} M parameters" if isinstance(size, (int, float)) else ""
    name = str(model.get("class", "")).rpartition(".")[2]
    return f"{name}{millions}" + (f": {listed}" if listed else "")


def _computes(facts: Mapping[str, Any]) -> str:
    entered = facts.get("autocast")
    layers = [entry for name in ("conv", "linear") if isinstance(entry := facts.get(name), Mapping)]
    layer: Mapping[str, Any] = layers[0] if layers else {}
    half = next((entry["autocast"] for entry in layers if entry.get("autocast")), None)
    asked = any(entry.get("after_autocast") for entry in layers)
    if half is None and isinstance(entered, Mapping) and entered.get("enabled") and not asked:
        half = entered.get("dtype")
    if half is not None:
        return f"{half} by autocast"
    without = "autocast around no layer" if asked else "no autocast"
    return f"{layer['weight']}, {without}" if layer.get("weight") else ""


def _convolution(conv: Any) -> str:
    if not isinstance(conv, Mapping):
        return ""
    layouts = [
        f"{name} {str(layout).replace('_', '-')}"
        for name in ("input", "weight")
        if (layout := conv.get(f"{name}_layout"))
    ]
    shape = conv.get("shape")
    sizes = "×".join(str(n) for n in shape) if isinstance(shape, (list, tuple)) else ""
    return ", ".join(part for part in (*layouts, sizes) if part)


def _waits(syncs: Any) -> str:
    if not isinstance(syncs, Mapping) or not syncs.get("looks"):
        return ""
    inspected_steps = int(syncs["looks"])
    parts = [
        f"{WORDS.get(str(entry.get('call')), '.' + str(entry.get('call')) + '()')}{_place(entry, ' at ')}: "
        f"{number(float(entry.get('count', 0)) / inspected_steps)} per step, {_ms(entry, inspected_steps)}"
        for entry in _entries(syncs.get("sites"))
    ]
    return f"{_few(parts) or 'none seen'} (in {inspected_steps} inspected steps)"


def _copies(facts: Mapping[str, Any]) -> str:
    syncs = facts.get("syncs")
    inspected_steps = int(syncs.get("looks") or 0) if isinstance(syncs, Mapping) else 0
    parts = [
        f"{number(float(entry.get('bytes', 0)) / 1e6 / inspected_steps)} MB per step{_place(entry, ' at ')}, "
        f"{'pinned' if entry.get('pinned') else 'pageable'}, {'' if entry.get('non_blocking') else 'not '}non_blocking"
        f"{', on a stream of its own' if entry.get('aside') else ''}, {_ms(entry, inspected_steps)}"
        for entry in _entries(facts.get("copies"))
        if inspected_steps
    ]
    return _few(parts)


def _replicas(replicas: Any) -> str:
    return _few([f"{made.get('devices')} GPUs{_place(made, ', at ')}" for made in _entries(replicas)])


def _place(entry: Mapping[str, Any], word: str) -> str:
    """The place with this word in front; empty if it is not known, as in most traces."""
    return f"{word}{str(entry.get('file', '')).rpartition('/')[2]}:{entry.get('line')}" if entry.get("file") else ""


def _ms(entry: Mapping[str, Any], inspected_steps: int) -> str:
    return f"{number(float(entry.get('blocked_ns', 0)) / 1e6 / inspected_steps)} ms"


def _few(parts: list[str]) -> str:
    more = len(parts) - _SHOWN
    return "; ".join(parts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
