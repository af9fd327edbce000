"""Block devices and the layers below them: partitions, device mapper, RAID and loop files, down to the physical disks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.probes.host.procfs import read_text

_PARTITION = re.compile(r"(?:(.*\d)p|([shv]d[a-z]+|xvd[a-z]+))\d+$")  # used only if /sys is missing
_LAYERS_MAX = 8  # layers; a loop device whose file is on itself would never end


def whole_disk(name: str, root: Path) -> str:
    """The disk of a partition; a whole disk is returned as it is."""
    node = root / "sys/class/block" / name
    if node.exists():
        return node.resolve().parent.name if (node / "partition").exists() else name
    match = _PARTITION.fullmatch(name)
    return (match[1] or match[2]) if match else name


def disk_of_number(number: str, root: Path) -> str | None:
    """The disk of a device number `major:minor`; None if /sys does not list it."""
    node = root / "sys/dev/block" / number
    return whole_disk(node.resolve().name, root) if node.exists() else None


def disks_below(disk: str, root: Path, disk_of_file: Callable[[str], str | None]) -> tuple[str, ...]:
    """The lowest disks below a layered device, sorted; empty if nothing is visible below it."""
    found: set[str] = set()
    layer = {disk}
    for _ in range(_LAYERS_MAX):
        layer = {lower for name in layer for lower in _next_below(name, root, disk_of_file)} - found
        if not layer:
            break
        found |= layer
    return tuple(sorted(name for name in found - {disk} if not _next_below(name, root, disk_of_file)))


def _next_below(disk: str, root: Path, disk_of_file: Callable[[str], str | None]) -> set[str]:
    node = root / "sys/class/block" / disk
    try:
        members = [path.name for path in (node / "slaves").iterdir()]
    except OSError:
        members = []
    lower = {whole_disk(member, root) for member in members}
    backing = read_text(node / "loop/backing_file")
    behind = disk_of_file(backing.removesuffix(" (deleted)")) if backing else None
    return lower | ({behind} if behind else set())


def rotational(disk: str, root: Path) -> bool | None:
    """True if the kernel considers the disk rotational, as it does many virtual disks; None: unknown."""
    text = read_text(root / "sys/class/block" / disk / "queue/rotational")
    return None if text is None else text == "1"


def model(disk: str, root: Path) -> str:
    """Model name of a disk (`Amazon Elastic Block Store`, `nvme_card-pd`, a vendor's name); empty if it has none."""
    return read_text(root / "sys/class/block" / disk / "device/model") or ""
