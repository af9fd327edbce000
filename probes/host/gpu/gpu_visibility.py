"""Maps a process's CUDA devices 0, 1, … to GPUs by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-f-]+)/\d+/\d+")
_ORDINAL = re.compile(r"\s*([+-]?\d+)")


class AskedGpu(Protocol):
    """Identity of a GPU; `index` is NVML's, in PCI bus order."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def mig_uuids(self) -> tuple[str, ...]: ...


def visible_devices(environment: Mapping[str, str], devices: Sequence[AskedGpu]) -> tuple[int, ...] | None:
    """NVML indices of a process's CUDA devices 0, 1, …; None if the environment does not determine them.

    Reads CUDA_VISIBLE_DEVICES like the CUDA driver: entries are ordinals or UUIDs (or unique prefixes of them), the first bad entry ends
    the list, a repeated one empties it. Ordinals count in CUDA's own order, which is the bus order only if all GPUs are of one model or
    CUDA_DEVICE_ORDER asks for it.
    """
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    if setting is not None and setting.lstrip().startswith(("GPU-", "MIG-")):
        return _by_uuid(setting, devices)
    ordered = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({d.name for d in devices}) < 2
    indices = tuple(d.index for d in devices)
    if setting is None:
        return indices if ordered else None
    ordinals: list[int] = []
    for entry in setting.split(","):
        match = _ORDINAL.match(entry)  # like strtoul: "1gpu" is 1
        ordinal = int(match[1]) if match else -1
        if not 0 <= ordinal < len(indices):
            break
        if ordinal in ordinals:
            return ()
        ordinals.append(ordinal)
    return tuple(indices[o] for o in ordinals) if ordered or not ordinals else None


def same_uuid(one: str, other: str) -> bool:
    """True if both name the same GPU. CUDA omits the prefix that NVML adds."""
    return bool(one) and _bare(one) == _bare(other)


def _bare(uuid: str) -> str:
    return uuid.strip().lower().removeprefix("gpu-").removeprefix("mig-")


def _by_uuid(setting: str, devices: Sequence[AskedGpu]) -> tuple[int, ...]:
    names = [(d.uuid, d.index) for d in devices] + [(mig, d.index) for d in devices for mig in d.mig_uuids]
    found: list[tuple[str, int]] = []
    for entry in setting.split(","):
        old = _OLD_MIG.fullmatch(entry.strip())
        if old:
            matches = [(entry.strip(), index) for uuid, index in names if uuid == old[1]]
        else:
            matches = [
                (uuid, index) for uuid, index in names if uuid.startswith(entry.strip()) and len(entry.strip()) > 4
            ]
        if len(matches) != 1:
            break
        if matches[0] in found:
            return ()
        found += matches
    return tuple(index for _, index in found)
