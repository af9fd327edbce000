"""The disks below partitions, device mapper, RAID and loop files."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe_trees import write_tree
from rn50_advisor.probes.host.storage.block_devices import disk_of_number, disks_below, model, rotational, whole_disk


def machine(root: Path) -> Path:
    """Two NVMe disks, of which partitions make a RAID below LVM; a SATA disk with a file that is a loop device."""
    devices = {
        "nvme0n1": "pci/nvme0/nvme0n1",
        "nvme0n1p2": "pci/nvme0/nvme0n1/nvme0n1p2",
        "nvme1n1": "pci/nvme1/nvme1n1",
        "sda": "pci/ata1/sda",
        "sda1": "pci/ata1/sda/sda1",
        "md0": "virtual/md0",
        "dm-0": "virtual/dm-0",
        "loop0": "virtual/loop0",
        "loop1": "virtual/loop1",
    }
    for name, place in devices.items():
        (root / "sys/devices" / place).mkdir(parents=True, exist_ok=True)
        (root / "sys/class/block").mkdir(parents=True, exist_ok=True)
        (root / "sys/class/block" / name).symlink_to(root / "sys/devices" / place)
    node = "sys/class/block"
    write_tree(
        root,
        {
            f"{node}/nvme0n1p2/partition": "2\n",
            f"{node}/sda1/partition": "1\n",
            f"{node}/loop0/loop/backing_file": "/images/data.img (deleted)\n",
            f"{node}/loop1/loop/backing_file": "/nfs/data.img\n",
            f"{node}/sda/queue/rotational": "1\n",
            f"{node}/nvme0n1/queue/rotational": "0\n",
            f"{node}/nvme0n1/device/model": "Amazon Elastic Block Store  \n",
            f"{node}/md0/slaves/nvme0n1p2/x": "",
            f"{node}/md0/slaves/nvme1n1/x": "",
            f"{node}/dm-0/slaves/md0/x": "",
        },
    )
    (root / "sys/dev/block").mkdir(parents=True)
    (root / "sys/dev/block/259:2").symlink_to(root / "sys/devices/pci/nvme0/nvme0n1/nvme0n1p2")
    return root


def of_file(path: str) -> str | None:
    return {"/images/data.img": "sda"}.get(path)


@pytest.mark.parametrize(
    ("name", "disk"),
    [("nvme0n1p2", "nvme0n1"), ("nvme0n1", "nvme0n1"), ("sda1", "sda"), ("dm-0", "dm-0"), ("loop0", "loop0")],
)
def test_the_kernel_shows_the_disk_of_a_partition(tmp_path: Path, name: str, disk: str) -> None:
    assert whole_disk(name, machine(tmp_path)) == disk


@pytest.mark.parametrize(
    ("name", "disk"),
    [
        ("nvme0n1p12", "nvme0n1"),
        ("mmcblk0p1", "mmcblk0"),
        ("sda1", "sda"),
        ("sdab12", "sdab"),
        ("xvdf1", "xvdf"),
        ("vda", "vda"),
        ("nvme0n1", "nvme0n1"),
        ("dm-0", "dm-0"),
        ("md127", "md127"),
        ("", ""),
    ],
)
def test_without_sys_the_name_shows_the_disk(tmp_path: Path, name: str, disk: str) -> None:
    assert whole_disk(name, tmp_path) == disk


def test_a_number_leads_to_its_disk(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert disk_of_number("259:2", root) == "nvme0n1"
    assert disk_of_number("0:53", root) is None


@pytest.mark.parametrize(
    ("disk", "below"),
    [
        ("dm-0", ("nvme0n1", "nvme1n1")),
        ("md0", ("nvme0n1", "nvme1n1")),
        ("loop0", ("sda",)),
        ("loop1", ()),  # nobody knows where that file lies
        ("sda", ()),
        ("gone", ()),
    ],
)
def test_layers_are_followed_down_to_the_disks(tmp_path: Path, disk: str, below: tuple[str, ...]) -> None:
    assert disks_below(disk, machine(tmp_path), of_file) == below


def test_a_loop_that_lies_on_itself_has_an_end(tmp_path: Path) -> None:
    assert disks_below("loop1", machine(tmp_path), lambda path: "loop1") == ()


def test_what_kind_of_disk_it_is(tmp_path: Path) -> None:
    root = machine(tmp_path)
    assert [rotational(disk, root) for disk in ("sda", "nvme0n1", "md0")] == [True, False, None]
    assert [model(disk, root) for disk in ("nvme0n1", "sda")] == ["Amazon Elastic Block Store", ""]
