"""Where rings go, and when their folder goes."""

from __future__ import annotations

import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dead_folders import of_a_dead_advisor
from memory_folders import memory_folder
from rn50_advisor.advisor.run.rings import agent_ring_folder
from rn50_advisor.advisor.run.rings.agent_ring_folder import PREFIX, RingFolder, in_use, sweep
from rn50_advisor.advisor.run.rings.own_folder import start_ticks

ROOT = str(Path(__file__).resolve().parents[4] / "src")


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def mounts(folder: Path, fs_type: str, file: Path) -> Path:
    """A mountinfo file in which the folder's file system is of this type."""
    device = folder.stat().st_dev
    file.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / {folder} rw - {fs_type} none rw\n")
    return file


def test_it_is_private_and_says_whose_it_is(place: Path) -> None:
    folder = RingFolder(places=[place])
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.path.name.startswith(f"{PREFIX}{os.getpid()}-{start_ticks(os.getpid())}-")
    folder.close(remove=True)
    assert not folder.path.exists()


def test_what_is_not_ours_outlives_the_folders_owner(place: Path) -> None:
    folder = RingFolder(places=[place])
    (folder.path / "theirs.txt").write_text("x")
    (folder.path / "rank-1.ring").write_text("x")
    folder.close(remove=True)
    assert sorted(path.name for path in folder.path.iterdir()) == ["owner.lock", "theirs.txt"]


@pytest.mark.parametrize(
    "name",
    [
        "rank-1.ring", "worker-23.ring", "rank-1.ring.0123456789abcdef.new", "facts-1.json", "times-1.json", "flight-1.json",
        "part-4294967295.json", "error-1.txt", "deep.json", "budget", "deep.json.0123456789abcdef.new",
    ],
)  # fmt: skip
def test_every_file_of_a_ring_folder_goes_with_it(place: Path, name: str) -> None:
    folder = RingFolder(places=[place])
    (folder.path / name).write_text("x")
    folder.close(remove=True)
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("fs_type", "taken"), [("tmpfs", True), ("ramfs", True), ("ext4", False), ("overlay", False), ("nfs4", False)]
)
def test_only_memory_will_do(tmp_path: Path, fs_type: str, taken: bool) -> None:
    mountinfo = mounts(tmp_path, fs_type, tmp_path / "mountinfo")
    if taken:
        RingFolder(places=[tmp_path], mounts=mountinfo).close(remove=True)
    else:
        with pytest.raises(OSError, match="is on a disk"):
            RingFolder(places=[tmp_path], mounts=mountinfo)
    assert [path.name for path in tmp_path.iterdir()] == ["mountinfo"]


def test_without_room_the_next_place_is_taken(tmp_path: Path, place: Path) -> None:
    absent, closed = place / "absent", place / "closed"
    closed.mkdir(mode=0o500)
    folder = RingFolder(places=[absent, tmp_path, place] if os.geteuid() == 0 else [absent, closed, tmp_path, place])
    assert folder.path.parent == place
    folder.close(remove=True)


def test_where_there_is_no_room_at_all_it_says_why_of_each_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = os.statvfs(place)
    full = os.statvfs_result((*space[:4], 100, *space[5:]))
    monkeypatch.setattr("os.statvfs", lambda path: full)
    with pytest.raises(OSError, match=rf"{place} has 0 MiB free of the 1 needed, /proc is on a disk .*--shm-size"):
        RingFolder(places=[place, Path("/proc")])


def test_a_folder_stays_while_a_process_of_the_job_has_a_ring_in_it(place: Path) -> None:
    folder = of_a_dead_advisor(place)
    ring = folder / f"rank-{os.getpid()}.ring"
    ring.write_bytes(b"x" * 4096)
    with ring.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4096)
    assert in_use(folder)
    assert sweep([place]) == 0
    mapped.close()
    assert not in_use(folder)
    assert sweep([place]) == 1


def test_start_ticks_name_a_process_and_are_none_for_the_dead() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid()) is not None
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert start_ticks(process.pid) is None


def test_without_a_folder_for_temporary_files_the_others_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory")

    monkeypatch.setattr("tempfile.gettempdir", none)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/mine")
    user = Path(f"/run/user/{os.geteuid()}")
    assert agent_ring_folder.default_places() == (agent_ring_folder.SHARED_MEMORY, user, Path("/run/mine"))


TINY = 'mount -t tmpfs -o size="$1" none /dev/shm && shift && exec "$@"'


@pytest.mark.parametrize("size", ["64k", "512k"])
def test_a_small_shared_memory_is_left_to_the_job(size: str) -> None:
    """Docker's has 64 MiB."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom pathlib import Path\n"
        "from rn50_advisor.advisor.run.rings.agent_ring_folder import *\n"
        "try:\n    RingFolder(places=[SHARED_MEMORY])\nexcept OSError as error:\n    print(error, list(SHARED_MEMORY.iterdir()))"
    )
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        TINY,
        "sh",
        size,
        sys.executable,
        "-c",
        code,
        ROOT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "Error" not in done.stderr:
        pytest.skip(f"A SMALL /dev/shm IS NOT TESTED: {done.stderr.strip()}")
    assert "/dev/shm has 0 MiB free of the 1 needed" in done.stdout, done
    assert done.stdout.endswith("[]\n"), "nothing was made there"
