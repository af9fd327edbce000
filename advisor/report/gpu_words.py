"""The GPUs of a host and how they are connected, in a line each: lists of them are for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_PAIRS_SHOWN = 6
_MATRIX_MOST = 16  # GPUs: more columns fit no page
_PEERLESS = {
    "CNS": "the chipset refuses peer to peer",
    "GNS": "these GPUs refuse peer to peer",
    "TNS": "too far apart for peer to peer",
    "DR": "peer to peer is switched off in the driver",
    "NS": "peer to peer is not supported",
}


def in_words(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment with its GPUs as short texts; what is not as the agent writes it is left as it is."""
    facts = dict(environment)
    if gpus := _mappings(facts.get("gpus")):
        facts["gpus"] = ", ".join(_kinds(gpus))
    if paths := _mappings(facts.get("gpu_paths")):
        facts["gpu_paths"] = "; ".join([*_paths(paths), *_refusals(paths)])
    return facts


@dataclass(frozen=True, slots=True)
class PathMatrix:
    """A row and a column a GPU; `notes`: why some pairs refuse peer to peer."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def path_matrix(environment: Mapping[str, Any]) -> PathMatrix | None:
    """The connections between all pairs of GPUs; None if a few words cover them, or the page is too narrow."""
    paths = [
        p
        for p in _mappings(environment.get("gpu_paths"))
        if isinstance(p.get("a"), int) and isinstance(p.get("b"), int)
    ]
    cells = {frozenset((path["a"], path["b"])): _cell(path) for path in paths}
    ends = sorted({end for pair in cells for end in pair})
    if len(set(cells.values())) < 2 or not 2 < len(ends) <= _MATRIX_MOST:
        return None
    rows = tuple((str(one), *(cells.get(frozenset((one, other)), "") for other in ends)) for one in ends)
    refused = sorted({str(path.get("p2p")) for path in paths} & _PEERLESS.keys())
    return PathMatrix(("GPU", *map(str, ends)), rows, tuple(f"{word}: {_PEERLESS[word]}" for word in refused))


def _cell(path: Mapping[str, Any]) -> str:
    refused = str(path.get("p2p"))
    return f"{path.get('path')}, {refused}" if refused in _PEERLESS else str(path.get("path"))


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """Nothing unless all of it is what it should be."""
    whole = isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)
    return list(value) if whole else []


def _kinds(gpus: Iterable[Mapping[str, Any]]) -> list[str]:
    """`8 × NVIDIA H100 80GB HBM3 (PCIe 5 x16, 18 NVLinks)`."""
    counted: dict[str, int] = {}
    for gpu in gpus:
        counted[_kind(gpu)] = counted.get(_kind(gpu), 0) + 1
    return [f"{count} × {kind}" for kind, count in counted.items()]


def _kind(gpu: Mapping[str, Any]) -> str:
    about = []
    if gpu.get("pcie_gen_max") and gpu.get("pcie_width_max"):
        about.append(f"PCIe {gpu['pcie_gen_max']} x{gpu['pcie_width_max']}")
    if gpu.get("nvlinks"):
        about.append(f"{gpu['nvlinks']} NVLinks")
    if gpu.get("mig_instances"):
        about.append(f"{len(gpu['mig_instances'])} MIG instances")
    return f"{gpu.get('name') or 'unknown GPU'}" + (f" ({', '.join(about)})" if about else "")


def _paths(paths: Iterable[Mapping[str, Any]]) -> list[str]:
    """`NV18 between all`, or `PHB 0–1 2–3`."""
    pairs: dict[str, list[str]] = {}
    for path in paths:
        pairs.setdefault(str(path.get("path")), []).append(f"{path.get('a')}–{path.get('b')}")
    if len(pairs) == 1:
        return [f"{next(iter(pairs))} between all"]
    return [f"{kind} {_few(names)}" for kind, names in pairs.items()]


def _refusals(paths: Iterable[Mapping[str, Any]]) -> list[str]:
    refused: dict[str, list[str]] = {}
    for path in paths:
        if path.get("p2p") in _PEERLESS:
            refused.setdefault(str(path["p2p"]), []).append(f"{path.get('a')}–{path.get('b')}")
    return [f"{_PEERLESS[why]}: {_few(names)}" for why, names in refused.items()]


def _few(names: list[str]) -> str:
    more = len(names) - _PAIRS_SHOWN
    return " ".join(names[:_PAIRS_SHOWN]) + (f" and {more} more" if more > 0 else "")
