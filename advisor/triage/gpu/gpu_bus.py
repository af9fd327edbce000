"""GPUs that lie on the PCI bus, or that the driver counts, and that it does not give out: lost ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import Band, Check, TriageGap
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.triage.found_checks import Found, Item, judged
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.nvml import ERRORS
from rn50_advisor.probes.host.gpu.pci import kernel_bus_id
from rn50_advisor.probes.host.procfs import read_text

NAME = "gpu.missing"
_NVIDIA, _DISPLAY = (
    "0x10de",
    ("0x0300", "0x0302"),
)  # VGA and 3D controllers; a board's sound and USB are functions of their own
_BAND = Band(None, 0.0, "the driver lists every GPU on the PCI bus")
# Errors for a GPU that others may use, and for things missing in this container but not in the machine.
_FORBIDDEN = tuple(ERRORS[name][0] for name in ("NVML_ERROR_NO_PERMISSION", "NVML_ERROR_OPERATING_SYSTEM"))
_NO_DRIVER = ("pynvml", "the bindings", ERRORS["NVML_ERROR_LIBRARY_NOT_FOUND"][0])


@dataclass(frozen=True, slots=True)
class Function:
    """A GPU on the PCI bus. `bound`: the NVIDIA driver is bound to it."""

    bus_id: str
    model: str
    bound: bool


def on_bus(root: Path = Path("/")) -> tuple[Function, ...]:
    """NVIDIA's GPUs that /sys shows, without those that another driver holds: nouveau, or vfio for a virtual machine."""
    found = []
    for place in sorted(root.glob("sys/bus/pci/devices/*")):
        if read_text(place / "vendor") == _NVIDIA and (read_text(place / "class") or "").startswith(_DISPLAY):
            driver = (place / "driver").resolve().name if (place / "driver").exists() else ""
            if driver in ("", "nvidia"):
                found.append(Function(place.name, read_text(place / "device") or "", bool(driver)))
    return tuple(found)


def missing(devices: Sequence[GpuDevice], gaps: Sequence[ProbeGap], root: Path = Path("/")) -> Iterator[Item]:
    """`gaps`: why the driver refused those that it counts. A gap where the bus does not show how many there should be."""
    known = {f"gpu:{device.index}" for device in devices}
    refused = [gap for gap in gaps if gap.metric == "gpu.*" and gap.scope.startswith("gpu:") and gap.scope not in known]
    refused = [gap for gap in refused if gap.reason not in _FORBIDDEN]
    functions = on_bus(root)
    blind = _blind(functions, devices, root)
    unlisted = [] if blind else _unlisted(functions, devices)
    count = max(len(refused), len(unlisted))
    if not count and blind:
        yield TriageGap(NAME, blind, "lspci and nvidia-smi -L show it on the host itself")
        return
    if not count and not (devices and functions):
        return
    what = "; ".join(dict.fromkeys(f"GPU {gap.scope.removeprefix('gpu:')}: {gap.reason}" for gap in refused))
    where = f"on the bus at {', '.join(unlisted)}" if unlisted else ""
    why = (
        f"{count} of {len(devices) + count} GPUs are not listed by the driver: {'; '.join(filter(None, (what, where)))}"
    )
    yield judged(NAME, float(count), "GPUs", _BAND, remedy="hand-back", strict=True, hint=why, why=why)


def silent(gaps: Sequence[ProbeGap], root: Path = Path("/")) -> Iterator[Item]:
    """The driver gives out no GPU at all: a gap on a machine without any, a setting to fix where the bus has some."""
    gap = next(iter(gaps), ProbeGap("gpu.*", "host", "the driver sees no GPU", "see dmesg"))
    yield TriageGap("gpu.*", gap.reason, gap.hint)
    functions = on_bus(root)
    absent = _part_of(functions, root) or any(word in gap.reason for word in _NO_DRIVER)
    if functions and gap.scope == "host" and not absent:
        why = f"{len(functions)} NVIDIA GPUs are on the PCI bus, but none is usable: {gap.reason}: {gap.hint}"
        yield Found(Check(NAME, float(len(functions)), "GPUs", _BAND, "bad", why), "fix", why=why)


def _blind(functions: Sequence[Function], devices: Sequence[GpuDevice], root: Path) -> str:
    """Returns the reason why missing GPUs cannot be seen on the bus; empty if they can, or if the bus or the driver has no GPUs."""
    if not devices or not functions:
        return ""
    if _part_of(functions, root):
        return "this container has only some of the GPUs on the bus: whether one of the others is lost cannot be seen"
    if not _bus_ids(devices) & {function.bus_id for function in functions}:
        return "the driver's GPUs are not among the PCI devices that /sys shows"
    return ""


def _unlisted(functions: Sequence[Function], devices: Sequence[GpuDevice]) -> list[str]:
    """GPUs on the bus that the driver does not list, among models it supports. Another model may be too old for the driver."""
    listed = _bus_ids(devices)
    models = {function.model for function in functions if function.bus_id in listed}
    return [f.bus_id for f in functions if f.bus_id not in listed and f.model in models]


def _bus_ids(devices: Sequence[GpuDevice]) -> set[str]:
    return {kernel_bus_id(device.pci_bus_id) for device in devices}


def _part_of(functions: Sequence[Function], root: Path) -> bool:
    """A container gets device files for its own GPUs alone, and sees all of them in /sys."""
    return len(list(root.glob("dev/nvidia[0-9]*"))) < sum(function.bound for function in functions)
