"""Xids, the driver's error reports, from its events, or from the kernel's log if the driver offers no events."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.nvml import error_name, gap_of
from rn50_advisor.probes.host.gpu.pci import kernel_bus_id

METRICS = ("gpu.xids",)
_LINE = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F:]+)(?:\.\d+)?\): (\d+)")
_PROCESS = re.compile(r"pid=[^,]*, (name=[^,]*, )?")
_KMSG = os.makedev(1, 11)
_RECORD_BYTES = 8192
_XIDS_MAX = 256  # per GPU and tick: one with endless errors must not delay the others


class XidWatch:
    """Reports only Xids after its creation."""

    def __init__(
        self, nvml: Any, devices: Sequence[GpuDevice], handles: Mapping[int, Any], gaps: GapsOnce, root: Path
    ) -> None:
        self._nvml = nvml
        self._gaps = gaps
        self._buses = {kernel_bus_id(device.pci_bus_id): device.index for device in devices}
        self._sets: dict[int, Any] = {}  # one per GPU: once a GPU is lost, only the wait for its own events fails
        refused = self._register(handles)
        self.watched = set(self._sets)
        self._log = _open_log(root) if refused else None
        for index, gap in refused.items():
            if self._log is None:
                gaps.add(gap.metric, gap.scope, gap.reason, "run as root, or see dmesg yourself for NVRM: Xid")
            else:
                self.watched.add(index)

    def _register(self, handles: Mapping[int, Any]) -> dict[int, ProbeGap]:
        """Registers for events. Returns the gaps of GPUs that cannot be watched by events."""
        nvml, refused = self._nvml, {}
        for index, handle in handles.items():
            try:
                events = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError as error:
                refused[index] = gap_of(error_name(nvml, error), METRICS[0], f"gpu:{index}")
            else:
                self._sets[index] = events
        return refused

    def take(self) -> list[tuple[int, int]]:
        """(GPU, Xid) pairs reported since the last call."""
        events = [(index, xid) for index in tuple(self._sets) for xid in self._events(index)]
        return [*events, *self._lines()]

    def _events(self, index: int) -> list[int]:
        nvml = self._nvml
        found: list[int] = []
        while len(found) < _XIDS_MAX:
            try:
                event = nvml.nvmlEventSetWait_v2(self._sets[index], 0)
            except nvml.NVMLError_Timeout:
                break
            except nvml.NVMLError as error:
                self._stop_watching(index, error_name(nvml, error))
                break
            if event.eventType & nvml.nvmlEventTypeXidCriticalError:
                found.append(int(event.eventData))
        return found

    def _stop_watching(self, index: int, name: str) -> None:
        gap = gap_of(name, METRICS[0], f"gpu:{index}")
        self._gaps.add(gap.metric, gap.scope, gap.reason, gap.hint)
        self.watched.discard(index)
        del self._sets[index]

    def _lines(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while self._log is not None and len(found) < _XIDS_MAX:
            try:
                text = os.read(self._log, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # the kernel overwrote the next record; the next read continues behind it
            except OSError:
                os.close(self._log)
                self._log = None
                break
            if not text:
                break
            for bus, xid in _LINE.findall(text):
                index = self._buses.get(kernel_bus_id(bus.decode()))
                if index is not None and index not in self._sets:
                    found.append((index, int(xid)))
        return found


def logged(root: Path = Path("/")) -> list[str]:
    """The kernel log's Xid lines since boot, without the program's name; empty if the log is not readable."""
    log = _open_log(root, os.SEEK_SET)
    text = b""
    while log is not None:
        try:
            record = os.read(log, _RECORD_BYTES)
        except BrokenPipeError:
            continue
        except OSError:  # nothing more to read
            record = b""
        text += record if b"NVRM" in record else b""
        if not record:
            os.close(log)
            break
    lines = (line for line in text.decode(errors="replace").splitlines() if "NVRM: Xid" in line)
    return [_PROCESS.sub("", line) for line in lines]


def _open_log(root: Path, whence: int = os.SEEK_END) -> int | None:
    path = root / "dev/kmsg"
    try:
        if not is_kernels_log(path.stat(), root):
            return None
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(log, 0, whence)
    except OSError:
        return None
    return log


def is_kernels_log(status: os.stat_result, root: Path) -> bool:
    """True if this is the kernel's log. Containers may have a console, a pipe or /dev/null there.

    A regular file is accepted only in a copy of a file system (`root` is not /).
    """
    device = stat.S_ISCHR(status.st_mode) and status.st_rdev == _KMSG
    return device or (stat.S_ISREG(status.st_mode) and root != Path("/"))
