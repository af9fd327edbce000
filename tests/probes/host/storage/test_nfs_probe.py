"""What NFS mounts were asked for, and fetched."""

from __future__ import annotations

from pathlib import Path

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.storage.nfs_probe import RECHECK_PERIOD_NS, NfsProbe

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


def test_an_nfs_mount_reports_bytes_read_and_bytes_requested(tmp_path: Path) -> None:
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
