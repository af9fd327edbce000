"""A seeded disk is cold when the job comes to it, and nothing else of the machine has been forgotten for that."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples.faults.fixtures import SlowDisk
from samples.faults.scenario import CannotBeMade


def bytes_from_disks() -> int:
    """Bytes that this process has read from block devices so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["read_bytes"])


def read_all(folder: Path) -> tuple[int, int]:
    """(bytes in the files, bytes that came from a disk)."""
    before = bytes_from_disks()
    held = sum(len(file.read_bytes()) for file in folder.iterdir())
    return held, bytes_from_disks() - before


@pytest.mark.parametrize("behind", [False, True], ids=["limit on the disk", "limit below it"])
def test_files_come_from_the_disk_once_and_other_files_stay_in_memory(tmp_path: Path, behind: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_bytes(b"x" * 1_000_000)
    try:
        with SlowDisk(0, files=20, behind=behind).hold(tmp_path) as conditions:
            data = Path(conditions.values["disk"])
            held, from_disk = read_all(data)
            assert held == 20 * 60_000 <= from_disk
            assert read_all(data) == (held, 0)
            assert read_all(other) == (1_000_000, 0)
    except CannotBeMade as reason:
        pytest.skip(f"NOT TESTED here: {reason}")
