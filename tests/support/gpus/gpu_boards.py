"""GPUs as the driver reports them, and as files of a PCI bus. Not a test."""

from __future__ import annotations

from pathlib import Path

from probe_trees import write_tree
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice


def board(count: int) -> tuple[GpuDevice, ...]:
    ids = [f"00000000:{16 * (n + 1):02X}:00.0" for n in range(count)]
    return tuple(GpuDevice(n, "NVIDIA A100-SXM4-40GB", f"GPU-{n}", ids[n], 40 << 30) for n in range(count))


def bus(root: Path, drivers: list[str], *, files: int | None = None, cores: int = 0) -> Path:
    """Writes a machine whose bus has one GPU per entry of `drivers`, bound to that driver ("": to none), and `files` device files."""
    tree = {}
    for n in range(len(drivers)):
        place = f"sys/bus/pci/devices/0000:{16 * (n + 1):02x}:00.0"
        tree |= {f"{place}/vendor": "0x10de\n", f"{place}/class": "0x030200\n", f"{place}/device": "0x20b0\n"}
    tree |= {
        "sys/bus/pci/devices/0000:c0:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:c0:00.0/class": "0x068000\n",
    }
    tree |= {f"dev/nvidia{n}": "" for n in range(drivers.count("nvidia") if files is None else files)}
    tree |= {"dev/nvidiactl": "", "sys/devices/system/cpu/online": f"0-{cores - 1}\n"}
    write_tree(root, tree)
    for n, driver in enumerate(drivers):
        (root / f"sys/bus/pci/drivers/{driver or 'none'}").mkdir(parents=True, exist_ok=True)
        if driver:
            (root / f"sys/bus/pci/devices/0000:{16 * (n + 1):02x}:00.0/driver").symlink_to(f"../../drivers/{driver}")
    return root
