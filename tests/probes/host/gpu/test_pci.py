"""Where a device sits on the bus."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.host.gpu.pci import kernel_bus_id


@pytest.mark.parametrize(
    ("bus_id", "kernels"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),  # NVML
        ("0000:1b:00", "0000:1b:00.0"),  # a line about an Xid
        ("0000:1b:00.1", "0000:1b:00.1"),
        ("00000002:00:00.0", "0002:00:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),  # a domain of Linux's own making has five digits
        ("", ""),
        ("x", "x"),
    ],
)
def test_a_place_on_the_bus_has_one_name(bus_id: str, kernels: str) -> None:
    assert kernel_bus_id(bus_id) == kernels
