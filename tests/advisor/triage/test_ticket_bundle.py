"""The bundle for a ticket: results and kernel files for its owner alone, and nobody's programs."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from probe_trees import V1_MOUNTS, V2_MOUNTS, write_tree
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.triage.ticket_bundle import KERNEL_FILES, write_bundle


def test_the_bundle_holds_results_and_kernel_files_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "stat").write_text("cpu 1 2 3\n")
    target = tmp_path / "ticket.tar.gz"
    write_bundle(target, {"triage.json": "{}"}, root)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == ["rn50-advisor-triage/kernel/proc/stat", "rn50-advisor-triage/triage.json"]
    with pytest.raises(AdvisorError):
        write_bundle(target, {}, root)
    assert not [name for name in KERNEL_FILES if "environ" in name or "cmdline" in name]


@pytest.mark.parametrize(
    ("mounts", "groups", "held"),
    [
        (V2_MOUNTS, "0::/job\n", {"job/cpu.max", "cpu.max", "job/memory.max", "job/io.max"}),
        (
            V1_MOUNTS,
            "4:memory:/job\n3:cpu,cpuacct:/job\n",
            {"cpu,cpuacct/job/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us", "memory/job/memory.limit_in_bytes"},
        ),
    ],
)
def test_the_bundle_holds_the_limits_of_our_own_control_group(
    tmp_path: Path, mounts: str, groups: str, held: set[str]
) -> None:
    names = {f"sys/fs/cgroup/{name}": f"{name}\n" for name in held}
    files = {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups, **names}
    kernel = packed(tmp_path, write_tree(tmp_path / "root", files))
    assert {name: kernel[name].decode() for name in names} == names


def test_the_bundle_holds_the_kernels_reports_of_gpus_and_not_whose_program_it_was(tmp_path: Path) -> None:
    lines = [
        "6,1,10,-;usb 1-1: new device",
        "4,2,20,-;NVRM: Xid (PCI:0000:10:00): 79, pid=4711, name=secret.py, GPU has fallen off the bus.",
        "4,3,30,-;NVRM: Xid (PCI:0000:10:00): 94, pid='<unknown>', Contained: ECC error",
    ]
    kernel = packed(tmp_path, write_tree(tmp_path / "root", {"dev/kmsg": "\n".join(lines)}))
    assert kernel["xids.txt"].decode().splitlines() == [
        "4,2,20,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.",
        "4,3,30,-;NVRM: Xid (PCI:0000:10:00): 94, Contained: ECC error",
    ]


def packed(folder: Path, root: Path) -> dict[str, bytes]:
    """The kernel's files in a bundle."""
    write_bundle(folder / "ticket.tar.gz", {}, root)
    prefix = "rn50-advisor-triage/kernel/"
    with tarfile.open(folder / "ticket.tar.gz") as archive:
        return {m.name.removeprefix(prefix): archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
