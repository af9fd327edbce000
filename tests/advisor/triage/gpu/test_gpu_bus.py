"""GPUs that lie on the PCI bus, or that the driver counts, and that it does not give out; and those that it keeps for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.instances import by_name
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.gpu.gpu_bus import missing, on_bus, silent
from rn50_advisor.advisor.triage.instance_checks import gpu_count
from rn50_advisor.advisor.triage.triage_runner import conclude
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice


def board(count: int) -> tuple[GpuDevice, ...]:
    ids = [f"00000000:{16 * (n + 1):02X}:00.0" for n in range(count)]
    return tuple(GpuDevice(n, "NVIDIA A100-SXM4-40GB", f"GPU-{n}", ids[n], 40 << 30) for n in range(count))


def bus(root: Path, drivers: list[str], *, files: int | None = None, cores: int = 0) -> Path:
    """A machine whose bus has a GPU for each driver that holds one ("": nobody), and so many device files."""
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


@pytest.mark.parametrize(
    ("drivers", "files", "shown", "lost"),
    [
        (["nvidia"] * 8, None, 8, 0),
        (["nvidia"] * 8, None, 7, 1),
        ([*["nvidia"] * 7, ""], None, 7, 1),  # the driver gave it up at its start
        ([*["nvidia"] * 4, *["vfio-pci"] * 4], None, 4, 0),  # four are lent to virtual machines
    ],
)
def test_a_gpu_on_the_bus_that_the_driver_does_not_give_out_is_lost(
    tmp_path: Path, drivers: list[str], files: int | None, shown: int, lost: int
) -> None:
    root = bus(tmp_path, drivers, files=files)
    (found,) = missing(board(shown), (), root)
    assert isinstance(found, Found) and found.check.value == float(lost)
    assert conclude([found]).verdict.state == ("hand-back" if lost else "keep")
    assert not lost or "0000:80:00.0" in found.why


def test_a_gpu_in_a_domain_of_five_digits_is_found(tmp_path: Path) -> None:
    root = bus(tmp_path, ["nvidia"])
    places = root / "sys/bus/pci/devices"
    (places / "0000:10:00.0").rename(places / "10000:10:00.0")
    (found,) = missing((replace(board(1)[0], pci_bus_id="00010000:10:00.0"),), (), root)
    assert isinstance(found, Found) and found.check.state == "ok"


def elsewhere(count: int) -> tuple[GpuDevice, ...]:
    return tuple(replace(device, pci_bus_id=f"0000000F:0{device.index}:00.0") for device in board(count))


@pytest.mark.parametrize(
    ("files", "devices", "why"),
    [
        pytest.param(2, board(2), "a part", id="a container that was given two"),
        pytest.param(None, elsewhere(8), "no place", id="no bus id is one of the bus"),
    ],
)
def test_nothing_is_said_to_be_there_where_the_bus_cannot_tell(
    tmp_path: Path, files: int | None, devices: tuple[GpuDevice, ...], why: str
) -> None:
    root = bus(tmp_path, ["nvidia"] * 8, files=files)
    (gap,) = missing(devices, (), root)
    assert not list(missing((), (), root)), "that none is given out is told by another check"
    assert isinstance(gap, TriageGap) and gap.name == "gpu.missing" and why in gap.reason
    (lost,) = missing(devices, (ProbeGap("gpu.*", "gpu:9", "the GPU has fallen off the bus"),), root)
    assert isinstance(lost, Found) and lost.check.value == 1.0, "what the driver itself tells holds there, too"


def test_an_old_card_that_the_driver_passes_over_is_not_lost(tmp_path: Path) -> None:
    root = bus(tmp_path, [*["nvidia"] * 2, ""])
    (root / "sys/bus/pci/devices/0000:30:00.0/device").write_text("0x0def\n")
    (found,) = missing(board(2), (), root)
    assert isinstance(found, Found) and found.check.state == "ok" and len(on_bus(root)) == 3


@pytest.mark.parametrize(
    ("reason", "lost"),
    [
        ("the GPU has fallen off the bus", True),
        ("not permitted", False),
        ("the operating system blocked access", False),
    ],
)
def test_a_gpu_that_the_driver_counts_and_refuses_is_lost_unless_it_is_kept_from_us(
    tmp_path: Path, reason: str, lost: bool
) -> None:
    gap = ProbeGap("gpu.*", "gpu:1", reason)
    in_mid_run = ProbeGap("gpu.*", "gpu:0", "the GPU has fallen off the bus")  # which the check of its errors tells
    items = list(missing(board(1), (gap, in_mid_run), tmp_path))
    assert conclude(items).verdict.state == ("hand-back" if lost else "keep")


MISMATCH = "driver library and kernel module have different versions"


@pytest.mark.parametrize(
    ("drivers", "files", "reason", "state"),
    [
        (["nvidia"] * 8, None, MISMATCH, "fix"),
        ([""] * 8, 0, "the NVIDIA kernel driver is not loaded", "fix"),
        ([], 0, "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)", "keep"),
        (["nvidia"] * 8, 0, "the NVIDIA driver sees no GPU", "keep"),  # a container without any
        (["nvidia"] * 8, None, "pynvml: No module named pynvml", "keep"),
    ],
)
def test_a_driver_that_gives_out_nothing_is_a_setting_where_the_bus_has_gpus(
    tmp_path: Path, drivers: list[str], files: int | None, reason: str, state: str
) -> None:
    items = list(silent((ProbeGap("gpu.*", "host", reason),), bus(tmp_path, drivers, files=files)))
    assert isinstance(items[0], TriageGap) and conclude(items).verdict.state == state


@pytest.mark.parametrize(
    ("on_it", "cores", "state"), [(7, 96, "hand-back"), (8, 96, "keep"), (7, 24, "keep"), (0, 96, "keep")]
)
def test_an_instance_whose_bus_lacks_a_gpu_goes_back(tmp_path: Path, on_it: int, cores: int, state: str) -> None:
    """Another number of cores: a virtual machine on the instance, which holds a part of it."""
    root = bus(tmp_path, ["nvidia"] * on_it, cores=cores)
    item = gpu_count(board(7), by_name("p4d.24xlarge"), root)
    assert conclude([item]).verdict.state == state
