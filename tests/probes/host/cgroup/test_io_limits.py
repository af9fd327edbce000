"""Limits of control groups on what is read and written."""

from __future__ import annotations

from pathlib import Path

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.cgroup.io_limits import PERIOD_NS, IoLimitsProbe
from rn50_advisor.probes.host.target import Target

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
    without_group = IoLimitsProbe(write_tree(tmp_path / "b", {"proc/7/cgroup": "0::/x\n"})).sample(0, RANKS[:1])
    assert missing(without_group) == {"disk.limit_read_bytes_s", "disk.limit_reads_s"}
