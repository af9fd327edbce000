"""PCI bus ids of devices."""

from __future__ import annotations

import re

_BUS_ID = re.compile(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)(?:\.([0-7]))?", re.I)


def kernel_bus_id(bus_id: str) -> str:
    """A bus id in the notation of /sys, "0000:1b:00.0".

    NVML writes eight digits of domain in capitals. The driver's log lines omit the function, which is 0. Other text is returned unchanged.
    """
    found = _BUS_ID.fullmatch(bus_id)
    if found is None:
        return bus_id
    domain, bus, device, function = (int(part or "0", 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
