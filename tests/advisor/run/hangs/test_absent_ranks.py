"""Which processes are ranks that have not begun to train."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.run.hangs.standing_ranks import absent_ranks

TRAIN = "python\0train.py\0"
SPAWN = "python\0-c\0spawn_main(pipe_handle=%d)\0"


def process(root: Path, pid: int, *, parent: int = 10, command: str = TRAIN, rank: int | None = None) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    fields = ["0"] * 50
    (folder / "stat").write_text(f"{pid} (python) S {parent} {' '.join(fields)}")
    (folder / "cmdline").write_text(command)
    told = "" if rank is None else f"RANK={rank}\0"
    (folder / "environ").write_text(f"PATH=/bin\0LOCAL_RANK=7\0{told}X=1\0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    process(tmp_path, 10, parent=1, command="torchrun\0")
    return tmp_path


def test_the_launcher_tells_who_they_are(root: Path) -> None:
    for n in range(4):
        process(root, 20 + n, rank=n)
    assert absent_ranks({1: 21, 2: 22}, 4, root=root) == {0: 20, 3: 23}
    assert absent_ranks({n: 20 + n for n in range(4)}, 4, root=root) == {}


def test_one_that_is_left_has_the_number_that_is_left(root: Path) -> None:
    for n in range(2):
        process(root, 20 + n, command=SPAWN % n)
    assert absent_ranks({1: 21}, 2, root=root) == {0: 20}
    assert absent_ranks({1: 21}, 3, root=root) == {}, "which of two numbers it has, nobody knows"


def test_other_processes_are_none(root: Path) -> None:
    process(root, 21, rank=1)
    process(root, 30, parent=21, rank=0)  # a loader's worker
    process(root, 31, command="python\0-c\0resource_tracker\0", rank=0)
    process(root, 32, rank=5)  # of another node's
    assert absent_ranks({1: 21}, 2, root=root) == {}


def test_a_process_that_has_gone_is_none(root: Path) -> None:
    assert absent_ranks({1: 21}, 2, root=root) == {}


def test_of_a_group_whose_size_is_not_known_nobody_is_missing(root: Path) -> None:
    for n in range(2):
        process(root, 20 + n, command=SPAWN % n)
    assert absent_ranks({1: 21}, 1, root=root) == {}
