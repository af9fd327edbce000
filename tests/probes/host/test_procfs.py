"""Files of /proc, kept open and read as bytes."""

from __future__ import annotations

from pathlib import Path

from probe_trees import stat_line, write_tree
from process_trees import recorded
from rn50_advisor.probes.host.procfs import KeptFiles, parse_cpu_list, parse_stat


def test_descriptors_of_the_gone_are_closed_and_many_processes_do_not_exhaust_them(tmp_path: Path) -> None:
    for pid in range(100, 140):
        write_tree(tmp_path, recorded(tmp_path, pid))
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    files = KeptFiles(tmp_path, limit=10)
    for pid in range(100, 140):
        assert files.read(pid, "stat") == files.read(pid, "stat") != b""
    assert len(list(descriptors.iterdir())) == before + 10
    files.prune({100})
    assert len(list(descriptors.iterdir())) == before + 1
    files.close()
    assert len(list(descriptors.iterdir())) == before


def test_a_file_of_many_records_is_read_to_its_end(tmp_path: Path) -> None:
    text = "x" * 200_000
    write_tree(tmp_path, {"proc/long": text})
    for limit in (0, 5):
        files = KeptFiles(tmp_path, limit=limit)
        assert files.read_all(0, "proc/long") == files.read_all(0, "proc/long") == text.encode()
        files.close()


def test_names_with_blanks_and_parentheses() -> None:
    stat = parse_stat(stat_line(7, comm="a) S 1 (b", parent=3, state="R").encode())
    assert (stat.comm, stat.parent_pid, stat.state) == (b"a) S 1 (b", 3, b"R")


def test_sets_of_cpus() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("\n") == set()
