"""Entries of folders, sockets and pipes that a new root treats by themselves."""

from __future__ import annotations

import socket
from pathlib import Path

from rn50_advisor.advisor.trials.inside.found_paths import all_below, entries, pipes, sockets, way_to

HEAD = "Num       RefCount Protocol Flags    Type St Inode Path\n"


def test_sockets_are_those_that_have_a_file(tmp_path: Path) -> None:
    path, plain = tmp_path / "a socket", tmp_path / "plain"
    plain.touch()
    lines = [
        f"0000: 00000002 00000000 00010000 0001 01 123 {name}"
        for name in (path, plain, "@abstract", "relative", tmp_path / "gone")
    ]
    listed = tmp_path / "unix"
    listed.write_text(HEAD + "\n".join([*lines, lines[0], "0000: 00000003 00000000 00000000 0001 03 5"]) + "\n")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        assert sockets(listed) == [str(path)]
    assert sockets(tmp_path / "gone") == []


def test_pipes_of_mps_are_found_where_it_says(tmp_path: Path) -> None:
    assert pipes({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}) == [str(tmp_path)]
    assert pipes({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "gone")}) == []


def test_entries_come_by_name_and_level_by_level(tmp_path: Path) -> None:
    for name in ("b/d", "a/c/e"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path)
    assert [entry.name for entry in entries(str(tmp_path))] == ["a", "b", "link"]
    assert [entry.name for entry in all_below(str(tmp_path))] == ["a", "b", "link", "c", "d", "e"]
    assert entries(str(tmp_path / "gone")) == []


def test_the_way_to_a_path_leaves_out_the_root() -> None:
    assert way_to("/a/b/c") == ["/a", "/a/b", "/a/b/c"]
    assert way_to("/") == []
