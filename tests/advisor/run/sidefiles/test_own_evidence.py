"""Files in places where others may write are read only if the job can have written them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.sidefiles.own_evidence import NotOfTheJob, open_own, read_own


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "nccl.log"
    file.write_bytes(b"NCCL INFO ring\n")
    os.utime(file, (1000.0, 1000.0))
    return file


def test_a_file_of_ours_that_is_young_enough_is_read_up_to_a_bound(file: Path) -> None:
    assert read_own(file, since_unix_s=1000.0, bytes_max=100) == b"NCCL INFO ring\n"
    assert read_own(file, since_unix_s=999.0, bytes_max=4) == b"NCCL"


def test_an_older_one_is_not_the_jobs(file: Path) -> None:
    with pytest.raises(NotOfTheJob, match=r"nccl\.log is no file of this job's"):
        read_own(file, since_unix_s=1000.5, bytes_max=100)


def test_a_file_that_a_process_has_open_is_known_by_its_inode(file: Path) -> None:
    inode = file.stat().st_ino
    with open_own(file, inode=inode) as opened:
        assert opened.read() == b"NCCL INFO ring\n"
    with pytest.raises(NotOfTheJob):
        open_own(file, inode=inode + 1)


def test_another_users_file_is_not_ours(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 12345, 12345)
    with pytest.raises(NotOfTheJob):
        open_own(file)
    with open_own(file, inode=file.stat().st_ino) as opened:
        assert opened.read(4) == b"NCCL"


def test_neither_links_nor_pipes_nor_folders_are_followed_or_waited_for(file: Path, tmp_path: Path) -> None:
    link, pipe, folder = tmp_path / "link", tmp_path / "pipe", tmp_path / "folder"
    link.symlink_to(file)
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (link, pipe, folder, tmp_path / "gone"):
        with pytest.raises(OSError):
            open_own(path)


def test_no_descriptor_is_left_of_a_refusal(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that counts
    for _ in range(5):
        with pytest.raises(NotOfTheJob):
            open_own(file, since_unix_s=2000.0)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
