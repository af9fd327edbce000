"""Memory, and what is set aside or missing of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions
from rn50_advisor.advisor.triage.host import memory_checks
from triage_hosts import by_name, check_of, host, v1


@pytest.mark.parametrize(
    ("megabytes", "free_share", "states"),
    [(64, 1.0, ("bad", "ok")), (1023, 1.0, ("low", "ok")), (1024, 1.0, ("ok", "ok")), (8192, 0.05, ("ok", "bad"))],
)
def test_small_or_full_shared_memory_is_a_setting(
    monkeypatch: pytest.MonkeyPatch, megabytes: int, free_share: float, states: tuple[str, str]
) -> None:
    blocks = megabytes << 8
    space = SimpleNamespace(f_blocks=blocks, f_frsize=4096, f_bavail=int(blocks * free_share))
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    found = by_name(memory_checks.shared_memory())
    size, free = found["memory.shm_bytes"], found["memory.shm_free_bytes"]
    assert (check_of(size).state, check_of(free).state) == states
    assert isinstance(size, Found) and size.remedy == "fix"


def test_reserved_huge_pages_and_the_memory_of_each_node_are_reported(tmp_path: Path) -> None:
    node = "Node {n} MemTotal:       {kib} kB\nNode {n} MemFree:        100 kB\n"
    root = write_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 1000 kB\nHugePages_Total:      64\nHugePages_Free:        8\n",
            **{f"sys/devices/system/node/node{n}/meminfo": node.format(n=n, kib=kib) for n, kib in ((0, 4096), (1, 0))},
        },
    )
    found = by_name(memory_checks.facts(host(tmp_path, {}), root))
    assert check_of(found["memory.hugepages_total"]).value == 64.0
    assert check_of(found["memory.hugepages_free"]).value == 8.0
    nodes = [check_of(found[f"numa.{n}.memory_bytes"]).value for n in range(2)]
    assert nodes == [4096 * 1024, 0.0], "a node without memory of its own gets it from afar"


def test_memory_that_could_not_be_had_is_no_slow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int) -> None:
        raise MemoryError

    monkeypatch.setattr(memory_checks.np, "ones", refused)
    monkeypatch.setattr(memory_checks, "_free_bytes", lambda watch: 64e9)
    (gap,) = memory_checks.speed(TriageOptions(tmp_path, "python"), v1(tmp_path, -1))
    assert isinstance(gap, TriageGap) and gap.name == "memory.copy_gb_per_s"
