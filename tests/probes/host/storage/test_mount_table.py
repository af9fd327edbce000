"""Lines of mountinfo as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.probes.host.storage.mount_table import MountEntry, parse_mountinfo


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
            MountEntry("98:0", "/mnt1", "/mnt2", "ext3", "/dev/root", "rw,errors=continue"),
        ),
        (
            "40 35 0:41 / /data rw - nfs4 server:/export rw,vers=4.2",
            MountEntry("0:41", "/", "/data", "nfs4", "server:/export", "rw,vers=4.2"),
        ),
        (
            r"41 35 0:42 / /my\040data\011x rw shared:1 master:2 - fuse.s3 s3\134bucket rw",
            MountEntry("0:42", "/", "/my data\tx", "fuse.s3", "s3\\bucket", "rw"),
        ),
        ("42 35 0:43 / /run rw - tmpfs tmpfs", MountEntry("0:43", "/", "/run", "tmpfs", "tmpfs", "")),
        (
            "43 35 0:44 / /x rw - tmpfs  rw",
            MountEntry("0:44", "/", "/x", "tmpfs", "", "rw"),
        ),  # of a source without a name
    ],
)
def test_a_line_is_one_mount(line: str, entry: MountEntry) -> None:
    assert parse_mountinfo(line + "\n") == (entry,)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "36 35 98:0 /mnt1", "36 35 - ext4 /dev/x rw", "36 35 98:0 / /mnt rw - ext4"]
)
def test_anything_else_is_passed_over(text: str) -> None:
    assert parse_mountinfo(text) == ()


def test_mounts_come_in_the_kernels_order() -> None:
    text = "1 0 8:1 / / rw - ext4 a rw\nno mount\n2 1 8:2 / /data rw - xfs b rw\n3 1 8:3 / /data rw - xfs c rw\n"
    assert [(mount.mount_point, mount.source) for mount in parse_mountinfo(text)] == [
        ("/", "a"),
        ("/data", "b"),
        ("/data", "c"),
    ]


def test_this_machines_own_table_is_read() -> None:
    text = Path("/proc/self/mountinfo").read_text()
    mounts = parse_mountinfo(text)
    assert len(mounts) == len(text.splitlines())
    assert "/proc" in {mount.mount_point for mount in mounts}
