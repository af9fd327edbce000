"""No file system stays writable unseen: the check that looks at the finished root, and what it is built from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.trials.inside.namespaces import Mapping
from rn50_advisor.advisor.trials.inside.overlay_root import NotCovered, OverlayRoot, Plan, _escaped

ROOT = "1 0 0:1 / / ro - ext4 /dev/sda rw\n"


def checked(tmp_path: Path, *lines: str) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(ROOT + "\n".join(lines) + "\n")
    plan = Plan(private="/tmp/private", place="/tmp/private/1-2", cwd="/work", keep=("/keep",))
    OverlayRoot(plan, Mapping(user=False), mountinfo).verify(mountinfo)


@pytest.mark.parametrize(
    "line",
    [
        "2 1 0:2 / /data ro - nfs server:/data rw",
        "2 1 0:2 / /data rw - squashfs /dev/loop1 ro",
        "2 1 0:2 / /keep rw - ext4 /dev/sda rw",
        "2 1 0:2 / /keep/below rw - nfs server:/runs rw",
        "2 1 0:2 / /run/rpc rw - rpc_pipefs sunrpc rw",
        "2 1 0:2 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "2 1 0:2 / /dev/hugepages rw - hugetlbfs none rw",
    ],
)
def test_what_is_read_only_kept_or_no_storage_may_stay(tmp_path: Path, line: str) -> None:
    checked(tmp_path, line)


@pytest.mark.parametrize("point", ["/data", "/keepsake", "/home/some\\040one", "/dev/shm"])
def test_a_file_system_that_stays_writable_is_named(tmp_path: Path, point: str) -> None:
    with pytest.raises(NotCovered, match=point.replace("\\040", " ")):
        checked(tmp_path, f"2 1 0:2 / {point} rw - ext4 /dev/sdb rw")


def test_a_root_that_stays_writable_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotCovered, match="/ "):
        checked(tmp_path, "2 1 0:2 / / rw - ext4 /dev/sdb rw")


def test_a_plan_names_real_folders(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    link, real = str(tmp_path / "link"), str(tmp_path / "real")
    plan = Plan.of({"private": link, "keep": [link], "wanted": [link]}, f"{link}/1-2", "/work")
    assert plan == Plan(real, f"{real}/1-2", "/work", (real,), None, ("/work", real))


def test_characters_that_divide_mount_options_are_escaped() -> None:
    assert _escaped("/a b,c:d\\e") == "/a b\\,c\\:d\\\\e"
