"""Where rings go, and which folders of dead advisors are swept."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.run import ringfolder
from advisor.run.ringfolder import PREFIX, RingFolder, in_use, sweep

ROOT = str(Path(__file__).resolve().parents[2])


def test_it_is_private_and_says_whose_it_is(tmp_path: Path) -> None:
    folder = RingFolder(None, places=[tmp_path])
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.path.name.startswith(f"{PREFIX}{os.getpid()}-")
    folder.close(remove=True)
    assert not folder.path.exists()


def test_without_room_in_memory_the_next_place_is_taken(tmp_path: Path) -> None:
    absent, full = tmp_path / "absent", Path("/proc")  # /proc has no room at all
    folder = RingFolder(None, places=[absent, full, tmp_path])
    assert folder.path.parent == tmp_path
    folder.close(remove=True)


def test_the_run_folder_is_the_last_resort(tmp_path: Path) -> None:
    folder = RingFolder(tmp_path, places=[Path("/proc")])
    assert folder.path.parent == tmp_path
    folder.close(remove=True)
    with pytest.raises(OSError, match="64 MiB"):
        RingFolder(None, places=[Path("/proc")])


def of_a_dead_advisor(place: Path) -> Path:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom advisor.run.ringfolder import RingFolder\n"
        "print(RingFolder(None, places=[Path(sys.argv[2])]).path)"
    )
    done = subprocess.run([sys.executable, "-c", code, ROOT, str(place)], capture_output=True, check=True, text=True)
    return Path(done.stdout.strip())


def test_a_dead_advisors_folder_is_swept(tmp_path: Path) -> None:
    folder = of_a_dead_advisor(tmp_path)
    (folder / "rank-999999999.ring").write_bytes(b"x")
    assert sweep([tmp_path]) == 1
    assert not folder.exists()


def test_a_living_advisors_folder_stays(tmp_path: Path) -> None:
    folder = RingFolder(None, places=[tmp_path])
    assert sweep([tmp_path]) == 0
    assert folder.path.exists()
    folder.close(remove=True)


def test_a_folder_stays_while_a_process_of_the_job_has_a_ring_in_it(tmp_path: Path) -> None:
    folder = of_a_dead_advisor(tmp_path)
    ring = folder / f"rank-{os.getpid()}.ring"
    ring.write_bytes(b"x" * 4096)
    with ring.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    assert in_use(folder)
    assert sweep([tmp_path]) == 0
    mapped.close()
    assert not in_use(folder)
    assert sweep([tmp_path]) == 1


def test_a_folder_that_is_just_being_made_stays(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}1-2-abc"
    folder.mkdir()
    assert sweep([tmp_path]) == 0
    long_ago = time.time() - 3600
    os.utime(folder, (long_ago, long_ago))
    assert sweep([tmp_path]) == 1


def test_what_only_looks_like_a_folder_of_ours_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").write_text("")
    assert sweep([tmp_path, tmp_path / "absent"]) == 0
    assert target.exists() and (tmp_path / f"{PREFIX}file").exists()


def test_start_ticks_name_a_process_and_are_none_for_the_dead() -> None:
    assert ringfolder.start_ticks(os.getpid()) == ringfolder.start_ticks(os.getpid())
    assert ringfolder.start_ticks(os.getpid()) is not None
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert ringfolder.start_ticks(process.pid) is None


def test_without_a_folder_for_temporary_files_shared_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr("tempfile.gettempdir", none)
    assert ringfolder.default_places() == (ringfolder.SHARED_MEMORY,)


def test_who_sweeps_while_a_folder_is_made_does_not_take_it_for_a_dead_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    swept: list[int] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr("fcntl.flock", lock)
        swept.append(sweep([tmp_path]))
        lock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", sweep_first)
    folder = RingFolder(None, places=[tmp_path])
    assert swept == [0] and folder.path.exists()
    folder.close(remove=True)
