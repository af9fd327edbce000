"""Last lines of ranks whose stderr is a file: whose they are, what stood there before, and what is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.sidefiles.stderr_files import StderrFiles, Streams

is_root = pytest.mark.skipif(os.geteuid() != 0, reason="OTHER USERS ARE NOT TESTED: root is needed")
APPENDS = "0102001"  # O_LARGEFILE | O_APPEND | O_WRONLY, as the kernel writes it
WRITES = "0100001"


def writes(
    root: Path, pid: int | str, to: str | Path, *, at: int = 0, flags: str = WRITES, descriptor: int = 2
) -> None:
    for folder in ("fd", "fdinfo"):
        (root / str(pid) / folder).mkdir(parents=True, exist_ok=True)
    (root / f"{pid}/fd/{descriptor}").symlink_to(to)
    (root / f"{pid}/fdinfo/{descriptor}").write_text(f"pos:\t{at}\nflags:\t{flags}\nmnt_id:\t29\n")


def last_lines_of(root: Path, *ended: int, ranks: dict[int, int | None]) -> tuple[list[str], list[str]]:
    files = StderrFiles(0, root)
    for pid, rank in ranks.items():
        files.watch(pid, rank)
    for pid in ended:
        files.ended(pid)
    lines, gaps = files.last_lines()
    return lines, [f"{gap.scope}: {gap.reason}" for gap in gaps]


def test_a_file_of_one_ranks_own_says_whose_lines_they_are_and_who_ended_first_comes_first(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"{rank}.log").write_text(f"step\nRuntimeError: of rank {rank}\n")
        writes(tmp_path, 100 + rank, tmp_path / f"{rank}.log")
    lines, gaps = last_lines_of(tmp_path, 101, 100, ranks={100: 0, 101: 1})
    assert lines[:2] == ["[rank1]: step", "[rank1]: RuntimeError: of rank 1"] and len(lines) == 4
    assert not gaps


def test_a_file_that_all_write_to_is_kept_once_and_names_no_rank(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\x1b[31mValueError: no\x1b[0m\n")
    for pid in (99, 100, 101):
        writes(tmp_path, pid, tmp_path / "log")
    assert last_lines_of(tmp_path, 100, ranks={99: None, 100: 0, 101: 1}) == (["ValueError: no"], [])


@pytest.mark.parametrize(
    ("at", "ours", "lines"),
    [
        pytest.param(12, False, ["[rank0]: new error"], id="it has written: what stands before is another job's"),
        pytest.param(0, False, [], id="it has not: nobody knows where its own begins"),
        pytest.param(0, True, ["new error"], id="ours, and so not its own: it began where we did"),
    ],
)
def test_what_others_wrote_before_into_a_file_that_goes_on_is_left_out(
    tmp_path: Path, at: int, ours: bool, lines: list[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("old error 1\n")
    writes(tmp_path, 100, log, at=at, flags=APPENDS)
    if ours:
        writes(tmp_path, "self", log)
    files = StderrFiles(log.stat().st_size, tmp_path)
    files.watch(100, 0)
    with log.open("a") as more:
        more.write("new error\n")
    assert files.last_lines() == (lines, [])


def test_what_the_launcher_of_the_ranks_says_goes_into_our_own_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Root Cause (first observed failure):\n")
    writes(tmp_path, "self", tmp_path / "log")
    assert last_lines_of(tmp_path, ranks={}) == (["Root Cause (first observed failure):"], [])


@pytest.mark.parametrize("to", ["pipe:[4711]", "/dev/pts/3", "/dev/null", "/gone/log (deleted)"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, to: str) -> None:
    writes(tmp_path, 100, to)
    assert last_lines_of(tmp_path, 100, ranks={100: 0}) == ([], [])


def add_inode(root: Path, pid: int, path: Path) -> None:
    with (root / f"{pid}/fdinfo/2").open("a") as about:
        about.write(f"ino:\t{path.stat().st_ino}\n")


def test_a_file_that_took_the_place_of_the_jobs_is_not_read(tmp_path: Path) -> None:
    files = StderrFiles(0, tmp_path)
    for pid, name in enumerate(("log", "link", "kept"), 100):
        (tmp_path / name).write_text("error: of " + name)
        writes(tmp_path, pid, tmp_path / name)
        add_inode(tmp_path, pid, tmp_path / name)
        files.watch(pid, None)
    for name in ("log", "link"):
        (tmp_path / name).rename(tmp_path / f"old {name}")
    (tmp_path / "log").write_text("error: planted")
    (tmp_path / "link").symlink_to(tmp_path / "old link")
    assert files.last_lines()[0] == ["error: of kept"]


@is_root
@pytest.mark.parametrize("inode", [True, False])
def test_a_file_of_another_users_is_read_where_it_is_known_to_be_the_jobs(tmp_path: Path, inode: bool) -> None:
    """`sudo job >> log`."""
    (tmp_path / "log").write_text("error: x")
    os.chown(tmp_path / "log", 12345, 12345)
    writes(tmp_path, 100, tmp_path / "log")
    if inode:
        add_inode(tmp_path, 100, tmp_path / "log")
    assert last_lines_of(tmp_path, ranks={100: 0}) == ((["[rank0]: error: x"] if inode else []), [])


def test_a_pipe_with_a_name_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    writes(tmp_path, 100, tmp_path / "fifo")
    assert last_lines_of(tmp_path, ranks={100: 0}) == ([], [])


def test_a_long_log_is_read_from_near_its_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("error: the first\n" + "step\n" * 100_000 + "error: the last\n")
    writes(tmp_path, 100, tmp_path / "log")
    lines, _ = last_lines_of(tmp_path, ranks={100: 0})
    assert lines[-1].endswith("error: the last") and not any("first" in line for line in lines)


def test_what_cannot_be_read_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes(tmp_path, 100, tmp_path / "gone")
    lines, gaps = last_lines_of(tmp_path, ranks={100: 0})
    assert lines == [] and gaps == [f"rank:0: {tmp_path}/gone: No such file or directory"]

    def refused(link: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "readlink", refused)
    assert last_lines_of(tmp_path, ranks={100: 3})[1] == [
        "rank:3: which file its stderr is may not be asked: Permission denied"
    ]


def test_which_files_are_a_jobs_stdout_and_where_it_begins_in_them(tmp_path: Path) -> None:
    writes(tmp_path, "self", tmp_path / "slurm.out", flags=APPENDS, descriptor=1)
    writes(tmp_path, 100, tmp_path / "slurm.out", at=900, flags=APPENDS, descriptor=1)
    writes(tmp_path, 101, tmp_path / "1.out", at=70, descriptor=1)
    writes(tmp_path, 102, tmp_path / "all.out", at=70, flags=APPENDS, descriptor=1)
    writes(tmp_path, 103, tmp_path / "all.out", at=50, flags=APPENDS, descriptor=1)
    writes(tmp_path, 104, "pipe:[4711]", descriptor=1)
    printed = Streams(1, 33, tmp_path)
    for rank in range(5):
        printed.watch(100 + rank, rank)
    begins = {file.path: file.begin for file in printed.files}
    assert begins == {f"{tmp_path}/slurm.out": 33, f"{tmp_path}/1.out": 0, f"{tmp_path}/all.out": 50}
