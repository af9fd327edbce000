"""GPUs that lie on the PCI bus, or that the driver counts, and that it does not give out; and those that it keeps for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_boards import board, bus
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.triage.found_checks import Found
from rn50_advisor.advisor.triage.gpu.gpu_bus import missing, on_bus, silent
from rn50_advisor.advisor.triage.triage_runner import conclude
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice


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
        pytest.param(2, board(2), "only some", id="a container that was given two"),
        pytest.param(None, elsewhere(8), "not among", id="no bus id is one of the bus"),
    ],
)
def test_nothing_is_missing_where_the_bus_cannot_show_it(
    tmp_path: Path, files: int | None, devices: tuple[GpuDevice, ...], why: str
) -> None:
    root = bus(tmp_path, ["nvidia"] * 8, files=files)
    (gap,) = missing(devices, (), root)
    assert not list(missing((), (), root)), "another check reports that none is given out"
    assert isinstance(gap, TriageGap) and gap.name == "gpu.missing" and why in gap.reason
    (lost,) = missing(devices, (ProbeGap("gpu.*", "gpu:9", "the GPU has fallen off the bus"),), root)
    assert isinstance(lost, Found) and lost.check.value == 1.0, "what the driver itself reports holds there, too"


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
    in_mid_run = ProbeGap("gpu.*", "gpu:0", "the GPU has fallen off the bus")  # which the check of its errors reports
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
