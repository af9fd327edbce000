"""Where the data lies that a job reads."""

from __future__ import annotations

import os
from pathlib import Path

from probe_trees import values, write_tree
from rn50_advisor.probes.host.storage.data_files import ENOUGH_FILES, SLOW_PERIOD_NS, DataFilesProbe
from rn50_advisor.probes.host.target import Target

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


def test_files_that_workers_read_show_the_storage_of_the_data(tmp_path: Path) -> None:
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
    mounts = probe.take_mounts()
    assert {(m.mount_point, m.network) for m in mounts} == {("/", False), ("/data", True), ("/runs", False)}
    assert len(mounts) == 3
    opens(root, 21, ("/data/b.jpg", READ), ("/data/a.jpg", READ))
    assert values(probe.sample(1, targets))["data.files", "mount:/data"] == 2
    assert not probe.take_mounts()


def test_with_files_enough_readings_become_rare(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/7/mountinfo": MOUNTS})
    opens(root, 7, *((f"/data/{n}.jpg", READ) for n in range(ENOUGH_FILES)))
    probe, targets = DataFilesProbe(root), [Target(7, "rank", 0)]

    def seen(now_ns: int) -> float:
        return values(probe.sample(now_ns, targets))["data.files", "mount:/data"]

    assert (seen(0), seen(1)) == (ENOUGH_FILES, ENOUGH_FILES)
    opens(root, 7, ("/data/more.jpg", READ))
    assert (seen(2), seen(SLOW_PERIOD_NS)) == (ENOUGH_FILES, ENOUGH_FILES)
    assert seen(SLOW_PERIOD_NS + 1) == ENOUGH_FILES + 1


def test_a_rank_without_workers_is_read(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {"proc/7/mountinfo": MOUNTS})
    opens(root, 7, ("/data/a.jpg", READ))
    assert values(DataFilesProbe(root).sample(0, [Target(7, "rank", 0)])) == {("data.files", "mount:/data"): 1}


def test_each_disk_is_reported_by_its_shortest_mount_though_no_file_is_open(tmp_path: Path) -> None:
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
