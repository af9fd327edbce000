"""NFS mounts, limits of control groups on disks, providers' own counters, and which files a job reads."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.cgroup import provider_limits
from rn50_advisor.probes.host.cgroup.io_limits import PERIOD_NS, IoLimitsProbe
from rn50_advisor.probes.host.cgroup.provider_limits import AllowancesProbe, parse_ebs_log
from rn50_advisor.probes.host.storage.data_files import ENOUGH_FILES, SLOW_PERIOD_NS, DataFilesProbe
from rn50_advisor.probes.host.storage.nfs_probe import RECHECK_PERIOD_NS, NfsProbe
from rn50_advisor.probes.host.target import Target

MOUNTSTATS = """\
device rootfs mounted on / with fstype rootfs
device /dev/nvme0n1p1 mounted on /boot with fstype xfs
device server:/export mounted on /data/team\\040a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,hard,proto=tcp,timeo=600,retrans=2,sec=sys
\tage:\t4711
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tevents:\t52 1000 0 0 40 30 1200 0 0 50 0 0 0 0 900 0 0 0 0 0 0 0 0 0 0 0 0
\tbytes:\t9000000 0 1000000 0 7000000 0 1709 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 3 700 700 0 900 0 2 100 50
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 800 801 0 150000 7100000 40 5200 5300 0
\t       WRITE: 0 0 0 0 0 0 0 0 0
device other:/more mounted on /more with fstype nfs statvers=1.1
\tbytes:\t5 0 0 0 5 0 1 0
\tper-op statistics
\t        READ: 1 1 0 1 1 0 2 2
"""


def test_an_nfs_mount_tells_what_it_fetched_and_what_was_asked_of_it(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/self/mountstats": MOUNTSTATS})
    found = values(NfsProbe(root).sample(0, []))
    assert {metric: value for (metric, scope), value in found.items() if scope == "mount:/data/team a"} == {
        "mount.read_bytes": 7_000_000,
        "mount.asked_bytes": 10_000_000,
        "mount.reads": 800,
        "mount.read_wait_s": 5.3,
    }
    assert found["mount.reads", "mount:/more"] == 1
    assert {scope for _, scope in found} == {"mount:/data/team a", "mount:/more"}


def test_an_nfs_mount_that_comes_later_is_found(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/self/mountstats": ""})
    probe = NfsProbe(root)
    probe.sample(0, [])
    write_tree(root, {"proc/self/mountstats": MOUNTSTATS})
    assert not probe.sample(RECHECK_PERIOD_NS - 1, []).samples
    assert probe.sample(RECHECK_PERIOD_NS, []).samples and probe.sample(RECHECK_PERIOD_NS + 1, []).samples


def test_a_machine_without_nfs_is_no_gap_and_one_without_mountstats_is(tmp_path: Path) -> None:
    silent = write_tree(tmp_path / "a", {"proc/self/mountstats": "device proc mounted on /proc with fstype proc\n"})
    reading = NfsProbe(silent).sample(0, [])
    assert not reading.samples and not reading.gaps
    assert "mount.read_bytes" in missing(NfsProbe(tmp_path / "b").sample(0, []))


RANKS = [Target(7, "rank", 0), Target(8, "rank", 1)]
V1 = "38 31 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
V2 = "25 22 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def disks(root: Path, **numbers: str) -> Path:
    """Block devices by name, with their numbers written `8_16`."""
    for name, number in numbers.items():
        (root / "sys/devices" / name).mkdir(parents=True)
        for link in (f"sys/class/block/{name}", f"sys/dev/block/{number.replace('_', ':')}"):
            (root / link).parent.mkdir(parents=True, exist_ok=True)
            (root / link).symlink_to(root / "sys/devices" / name)
    return root


def test_the_tightest_limit_of_all_levels_and_ranks_counts_in_v1(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/blkio"
    root = write_tree(
        disks(tmp_path, loop0="7_0", sda="8_0"),
        {
            "proc/self/mountinfo": V1,
            "proc/7/cgroup": "7:blkio:/job/a\n0::/\n",
            "proc/8/cgroup": "7:blkio:/job\n0::/\n",
            f"{group}/job/a/blkio.throttle.read_bps_device": "7:0 5000000\n",
            f"{group}/job/a/blkio.throttle.read_iops_device": "",
            f"{group}/job/blkio.throttle.read_bps_device": "7:0 2000000\n8:0 9000000\n9:9 1\n",
            f"{group}/job/blkio.throttle.read_iops_device": "8:0 120\n",
        },
    )
    assert values(IoLimitsProbe(root).sample(0, RANKS)) == {
        ("disk.limit_read_bytes_s", "disk:loop0"): 2e6,
        ("disk.limit_read_bytes_s", "disk:sda"): 9e6,
        ("disk.limit_reads_s", "disk:sda"): 120.0,
    }


def test_limits_in_v2_may_leave_a_kind_open(tmp_path: Path) -> None:
    root = write_tree(
        disks(tmp_path, nvme0n1="259_0"),
        {
            "proc/self/mountinfo": V2,
            "proc/7/cgroup": "0::/docker/x\n",
            "sys/fs/cgroup/docker/x/io.max": "259:0 rbps=max wbps=1000 riops=500 wiops=max\n",
            "sys/fs/cgroup/docker/io.max": "259:0 rbps=131072000 wbps=max riops=max wiops=max\n",
        },
    )
    probe = IoLimitsProbe(root)
    assert values(probe.sample(0, RANKS[:1])) == {
        ("disk.limit_read_bytes_s", "disk:nvme0n1"): 131072000.0,
        ("disk.limit_reads_s", "disk:nvme0n1"): 500.0,
    }
    (root / "sys/fs/cgroup/docker/x/io.max").write_text("")
    assert ("disk.limit_reads_s", "disk:nvme0n1") in values(probe.sample(PERIOD_NS - 1, RANKS[:1]))
    assert ("disk.limit_reads_s", "disk:nvme0n1") not in values(probe.sample(PERIOD_NS, RANKS[:1]))


def test_groups_without_limits_are_no_gap_and_groups_that_cannot_be_seen_are(tmp_path: Path) -> None:
    files = {"proc/self/mountinfo": V2, "proc/7/cgroup": "0::/x\n", "sys/fs/cgroup/x/cgroup.procs": "7\n"}
    seen = IoLimitsProbe(write_tree(tmp_path / "a", files)).sample(0, RANKS[:1])
    assert not seen.samples and not seen.gaps
    unseen = IoLimitsProbe(write_tree(tmp_path / "b", {"proc/7/cgroup": "0::/x\n"})).sample(0, RANKS[:1])
    assert missing(unseen) == {"disk.limit_read_bytes_s", "disk.limit_reads_s"}


EBS = {"sys/block/nvme1n1/size": "9\n", "sys/class/block/nvme1n1/device/model": "Amazon Elastic Block Store  \n"}
OTHER = {"sys/block/nvme0n1/size": "9\n", "sys/class/block/nvme0n1/device/model": "Amazon EC2 NVMe Instance Storage\n"}


def ebs_log(*exceeded_us: int, magic: int = 0x3C23B510) -> bytes:
    """As a volume answers: six counters, then microseconds beyond the volume's and the machine's limits."""
    return struct.pack("<II10Q", magic, 0, 1, 2, 3, 4, 5, 6, *exceeded_us).ljust(4096, b"\0")


def test_an_ebs_volume_tells_how_long_it_was_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        provider_limits,
        "read_ebs_log",
        lambda device: asked.append(device) or ebs_log(1_000_000, 31_500_000, 0, 200_000),
    )
    found = values(AllowancesProbe(write_tree(tmp_path, EBS | OTHER)).sample(0, []))
    assert found == {
        ("disk.volume_exceeded_s", "disk:nvme1n1"): 31.5,
        ("disk.instance_exceeded_s", "disk:nvme1n1"): 0.2,
    }
    assert asked == [f"{tmp_path}/dev/nvme1n1"]


def test_a_log_of_another_vendor_is_not_read_as_one() -> None:
    assert parse_ebs_log(ebs_log(1, 1, 1, 1, magic=0xEC2C0D7E)) is None


def test_a_volume_that_may_not_be_asked_is_a_gap_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: str) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(provider_limits, "read_ebs_log", refused)
    probe = AllowancesProbe(write_tree(tmp_path, EBS))
    (gap, _) = probe.sample(0, []).gaps
    assert gap.scope == "disk:nvme1n1" and "Permission denied" in gap.reason and "root" in gap.hint
    assert not probe.sample(1, []).gaps


def test_the_counter_of_a_link_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's answers as the kernel packs them: the number of counters, their names, their values."""
    counters = {"tx_timeout": 1, "bw_in_allowance_exceeded": 815, "bw_out_allowance_exceeded": 4}

    def driver(interface: str, request: bytearray) -> None:
        if interface != "eth0":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        command = struct.unpack_from("=I", request)[0]
        if command == 0x37:
            struct.pack_into("=I", request, 16, len(counters))
        elif command == 0x1B:
            request[12:] = b"".join(name.encode().ljust(32, b"\0") for name in counters)
        else:
            request[8:] = struct.pack("=3Q", *counters.values())

    monkeypatch.setattr(provider_limits, "ethtool", driver)
    root = write_tree(tmp_path, {"sys/class/net/eth0/mtu": "1", "sys/class/net/lo/mtu": "1"})
    assert values(AllowancesProbe(root).sample(0, [])) == {("net.in_exceeded", "net:eth0"): 815.0}


def test_the_real_machine_is_asked_without_harm() -> None:
    reading = AllowancesProbe().sample(0, [])
    assert all(sample.metric in (*provider_limits.DISK_METRICS, "net.in_exceeded") for sample in reading.samples)


MOUNTS = """\
27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw
30 27 0:50 / /data rw - nfs4 server:/export rw
31 27 0:51 / /runs rw - xfs /dev/sdb rw
"""


def opens(root: Path, pid: int, *files: tuple[str, int]) -> None:
    """A process's open files with their flags."""
    folder = root / f"proc/{pid}/fd"
    folder.mkdir(parents=True, exist_ok=True)
    for number, (path, flags) in enumerate(files, start=len(list(folder.iterdir()))):
        (folder / str(number)).symlink_to(path)
        write_tree(root, {f"proc/{pid}/fdinfo/{number}": f"pos:\t0\nflags:\t0{flags:o}\n"})


READ, WRITE = os.O_RDONLY | 0o100000, os.O_WRONLY | os.O_APPEND


def test_what_workers_read_tells_where_the_data_lies(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/21/mountinfo": MOUNTS})
    opens(
        root,
        21,
        ("/dev/null", READ),
        ("pipe:[1]", READ),
        ("/runs/log.txt", WRITE),
        ("/usr/lib/libx.so", READ),
        ("/runs/gone (deleted)", READ),
        ("/data/a.jpg", READ),
        ("/root/list.txt", READ),
    )
    opens(root, 7, ("/runs/checkpoint.pt", READ))
    probe = DataFilesProbe(root)
    targets = [Target(7, "rank", 0), Target(21, "worker", 0)]
    assert values(probe.sample(0, targets)) == {("data.files", "mount:/"): 1, ("data.files", "mount:/data"): 1}
    told = probe.take_mounts()
    assert {(m.mount_point, m.network) for m in told} == {("/", False), ("/data", True), ("/runs", False)}
    assert len(told) == 3
    opens(root, 21, ("/data/b.jpg", READ), ("/data/a.jpg", READ))
    assert values(probe.sample(1, targets))["data.files", "mount:/data"] == 2
    assert not probe.take_mounts()


def test_with_files_enough_looks_become_rare(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/7/mountinfo": MOUNTS})
    opens(root, 7, *((f"/data/{n}.jpg", READ) for n in range(ENOUGH_FILES)))
    probe, targets = DataFilesProbe(root), [Target(7, "rank", 0)]

    def seen(now_ns: int) -> float:
        return values(probe.sample(now_ns, targets))["data.files", "mount:/data"]

    assert (seen(0), seen(1)) == (ENOUGH_FILES, ENOUGH_FILES)
    opens(root, 7, ("/data/more.jpg", READ))
    assert (seen(2), seen(SLOW_PERIOD_NS)) == (ENOUGH_FILES, ENOUGH_FILES)
    assert seen(SLOW_PERIOD_NS + 1) == ENOUGH_FILES + 1


def test_a_rank_without_workers_is_looked_into(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/7/mountinfo": MOUNTS})
    opens(root, 7, ("/data/a.jpg", READ))
    assert values(DataFilesProbe(root).sample(0, [Target(7, "rank", 0)])) == {("data.files", "mount:/data"): 1}


def test_each_disk_is_told_by_its_shortest_mount_though_no_file_is_open(tmp_path: Path) -> None:
    bound = "32 27 8:16 / /etc/hosts rw - xfs /dev/sdb rw\n33 27 8:16 / /mnt rw - xfs /dev/sdb rw\n"
    root = write_tree(tmp_path, {"proc/7/mountinfo": bound, "proc/7/fd/x": ""})
    probe = DataFilesProbe(root)
    probe.sample(0, [Target(7, "rank", 0)])
    assert [m.mount_point for m in probe.take_mounts()] == ["/mnt"]


def test_a_process_that_has_just_ended_is_passed_over(tmp_path: Path) -> None:
    reading = DataFilesProbe(tmp_path).sample(0, [Target(99, "worker", 0)])
    assert not reading.samples and not reading.gaps


def test_our_own_open_file_is_found_on_its_file_system(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    probe = DataFilesProbe()
    with (tmp_path / "a.bin").open("rb"):
        probe.sample(0, [Target(os.getpid(), "rank", 0)])
    assert probe.take_mounts()
