"""Disks, and which of them a path lies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.storage.disk_probe import RECHECK_PERIOD_NS, DiskProbe, Mount, is_network, mount_of

IDLE = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
DISKSTATS = f"""\
   7       0 loop0 {IDLE}
   7       1 loop1 5 0 40 1 0 0 0 0 0 1 1
   1       0 ram0 {IDLE}
 253       0 zram0 9 0 72 1 0 0 0 0 0 1 1
  11       0 sr0 {IDLE}
 259       0 nvme0n1 100 7 2000 50 40 3 800 20 2 1500 2500 0 0 0 0 0 0
 259       1 nvme0n1p1 90 7 1900 50 40 3 800 20 0 1400 2400
   8       0 sda 1 0 8 1 0 0 0 0 0 1 1
   8       1 sda1 1 0 8 1 0 0 0 0 0 1 1
 254       0 dm-0 30 0 600 5 0 0 0 0 0 40 50
"""


def machine(root: Path) -> Path:
    """nvme0n1 with a partition that carries dm-0, sda with a partition, a loop device with a file, one without."""
    sizes = {"loop0": 0, "loop1": 2048, "ram0": 99, "zram0": 99, "sr0": 0, "nvme0n1": 9999, "sda": 99, "dm-0": 99}
    files = {f"sys/devices/block/{name}/size": f"{size}\n" for name, size in sizes.items()}
    for disk, part in (("nvme0n1", "nvme0n1p1"), ("sda", "sda1")):
        files |= {f"sys/devices/block/{disk}/{part}/partition": "1\n", f"sys/devices/block/{disk}/{part}/size": "9\n"}
    write_tree(root, files | {"proc/diskstats": DISKSTATS})
    (root / "sys/class/block").mkdir(parents=True)
    (root / "sys/dev/block").mkdir(parents=True)
    for line in DISKSTATS.splitlines():
        major, minor, name = line.split()[:3]
        (node,) = (root / "sys/devices/block").rglob(name)
        (root / "sys/class/block" / name).symlink_to(node)
        (root / "sys/dev/block" / f"{major}:{minor}").symlink_to(node)
    return root


def test_whole_real_disks_only(tmp_path: Path) -> None:
    found = values(DiskProbe(machine(tmp_path)).sample(0, []))
    assert {scope for _, scope in found} == {"disk:loop1", "disk:nvme0n1", "disk:sda", "disk:dm-0"}
    assert {metric: value for (metric, scope), value in found.items() if scope == "disk:nvme0n1"} == {
        "disk.read_bytes": 2000 * 512,
        "disk.reads": 100,
        "disk.read_wait_s": 0.05,
        "disk.write_bytes": 800 * 512,
        "disk.writes": 40,
        "disk.busy_s": 1.5,
        "disk.queue_s": 2.5,
    }


def test_partitions_are_known_by_their_names_where_sys_is_missing(tmp_path: Path) -> None:
    found = values(DiskProbe(write_tree(tmp_path, {"proc/diskstats": DISKSTATS})).sample(0, []))
    assert {scope for _, scope in found} == {"disk:loop1", "disk:nvme0n1", "disk:sda", "disk:dm-0"}


def test_a_loop_device_that_gets_a_file_appears(tmp_path: Path) -> None:
    probe = DiskProbe(machine(tmp_path))
    assert ("disk.reads", "disk:loop0") not in values(probe.sample(0, []))
    write_tree(tmp_path, {"sys/devices/block/loop0/size": "4096\n"})
    assert ("disk.reads", "disk:loop0") in values(probe.sample(RECHECK_PERIOD_NS, []))


def test_no_diskstats_is_a_gap_reported_once(tmp_path: Path) -> None:
    probe = DiskProbe(tmp_path)
    assert "disk.read_bytes" in missing(probe.sample(0, []))
    assert not probe.sample(1, []).gaps


MOUNTS = """\
27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw
28 27 0:22 / /proc rw - proc proc rw
29 27 254:0 / /data rw - xfs /dev/mapper/vg-data rw
30 29 0:50 / /data/team\\040a rw - nfs4 server:/export rw,vers=4.2
31 27 8:1 / /scratch rw - ext4 /dev/sda1 rw
32 27 0:60 / /scratch rw - tmpfs tmpfs rw
33 27 0:61 / /btrfs rw - btrfs /dev/sda1 rw
34 27 0:62 / /bucket rw - fuse mountpoint-s3 rw
35 27 0:63 / /merged rw - overlay overlay rw,lowerdir=/data/low,upperdir=/data/up,workdir=/data/work
36 27 0:64 / /host rw - 9p hostshare rw
37 27 0:65 / /opaque rw - overlay overlay rw,lowerdir=/var/lib/docker/l/A,upperdir=/var/lib/docker/B
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/images", Mount("/dev/nvme0n1p1", "/", "ext4", False, "nvme0n1")),
        ("/data", Mount("/dev/mapper/vg-data", "/data", "xfs", False, "dm-0")),
        ("/data/x/../y.jpg", Mount("/dev/mapper/vg-data", "/data", "xfs", False, "dm-0")),
        ("/database/x", Mount("/dev/nvme0n1p1", "/", "ext4", False, "nvme0n1")),
        ("/data/team a/x", Mount("server:/export", "/data/team a", "nfs4", True, None)),
        ("/scratch/x", Mount("tmpfs", "/scratch", "tmpfs", False, None)),
        ("/btrfs/x", Mount("/dev/sda1", "/btrfs", "btrfs", False, "sda")),
        ("/bucket/x", Mount("mountpoint-s3", "/bucket", "fuse", True, None)),
        ("/merged/x", Mount("overlay", "/merged", "overlay", False, "dm-0")),
        ("/host/x", Mount("hostshare", "/host", "9p", None, None)),
        ("/link/x", Mount("server:/export", "/data/team a", "nfs4", True, None)),
    ],
)
def test_the_mount_of_a_path(tmp_path: Path, path: str, expected: Mount) -> None:
    root = write_tree(machine(tmp_path), {"proc/self/mountinfo": MOUNTS, "data/team a/x": ""})
    (root / "link").symlink_to("data/team a")
    assert mount_of(path, root) == expected


def test_a_layered_device_is_followed_down_to_its_disks(tmp_path: Path) -> None:
    """A volume over two partitions' disks, and a loop file that lies on it."""
    root = write_tree(machine(tmp_path), {"proc/self/mountinfo": MOUNTS, "data/disk.img": "", "loop/x": ""})
    blocks = root / "sys/devices/block"
    write_tree(blocks, {"loop1/loop/backing_file": "/data/disk.img\n", "sda/queue/rotational": "1\n"})
    write_tree(blocks, {"nvme0n1/queue/rotational": "0\n", "nvme0n1/device/model": "Amazon Elastic Block Store   \n"})
    for name in ("nvme0n1/nvme0n1p1", "sda"):
        (blocks / "dm-0/slaves").mkdir(exist_ok=True)
        (blocks / "dm-0/slaves" / name.rpartition("/")[2]).symlink_to(blocks / name)
    with (root / "proc/self/mountinfo").open("a") as mounts:
        mounts.write("38 27 7:1 / /loop rw - ext4 /dev/loop1 rw\n")
    volume, loop = mount_of("/data/x", root), mount_of("/loop/x", root)
    assert volume is not None and loop is not None
    assert (volume.disk, volume.below) == ("dm-0", ("nvme0n1", "sda"))
    assert (volume.seeks, volume.model) == (False, "Amazon Elastic Block Store")
    assert (loop.disk, loop.below) == ("loop1", ("nvme0n1", "sda"))


def test_an_overlay_whose_layers_are_not_visible_is_unknown(tmp_path: Path) -> None:
    text = "35 27 0:63 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/l/A,upperdir=/var/lib/docker/B\n"
    root = write_tree(tmp_path, {"proc/self/mountinfo": text})
    assert mount_of("/images", root) == Mount("overlay", "/", "overlay", None, None)


def test_without_mountinfo_there_is_no_answer(tmp_path: Path) -> None:
    assert mount_of("/images", tmp_path) is None


@pytest.mark.parametrize(
    ("fs_type", "source", "expected"),
    [
        ("ext4", "/dev/sda1", False),
        ("tmpfs", "tmpfs", False),
        ("nfs", "server:/x", True),
        ("cifs", "//server/x", True),
        ("lustre", "10.0.0.1@tcp:/fs", True),
        ("ceph", "mon:/", True),
        ("fuse.gcsfuse", "bucket", True),
        ("fuse.s3fs", "s3fs", True),
        ("fuse.sshfs", "me@host:/x", True),
        ("fuse.bindfs", "/x", None),
        ("fuseblk", "/dev/sdb1", False),
        ("virtiofs", "share", None),
        ("9p", "share", None),
    ],
)
def test_what_is_fetched_over_a_network(fs_type: str, source: str, expected: bool | None) -> None:
    assert is_network(fs_type, source) is expected


def test_the_real_root_lies_somewhere() -> None:
    mount = mount_of("/")
    assert mount is not None
    assert mount.mount_point == "/"
