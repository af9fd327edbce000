"""The tree of a job's processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from probe_trees import stat_line, values, write_tree
from process_trees import end, hear, pids, process, python, say
from rn50_advisor.probes.host.process.process_probe import (
    ExitStatus,
    ProcessesProbe,
    ProcessTree,
)
from rn50_advisor.probes.host.process.process_tree import RESCAN_PERIOD_NS
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, KeptFiles
from rn50_advisor.probes.host.target import Target


def test_the_tree_of_a_real_job() -> None:
    code = """
import subprocess, sys, os
worker = "import sys, os, time\\nwhile os.times().user < 0.3: pass\\nprint('burnt', flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
input()
child.communicate()
print("reaped", flush=True)
input()
"""
    with python(code) as job:
        worker = int(hear(job))
        tree = ProcessTree(job.pid)
        change = tree.update(0)
        assert {m.pid for m in change.started} == {m.pid for m in tree.members()} == {job.pid, worker}
        members = {m.pid: m for m in tree.members()}
        assert members[worker].parent_pid == job.pid
        assert "while os.times().user" in members[worker].command
        assert members[job.pid].started_ns <= members[worker].started_ns
        burnt = tree.cpu_s
        assert burnt >= 0.3
        say(job)
        assert hear(job) == "reaped"
        assert {m.pid for m in tree.update(1).ended} == {worker}
        assert tree.processes == 1
        assert tree.cpu_s >= burnt, "the dead keep what they used"
        assert tree.update(1) is tree.update(1), "the same time is read once"
        probe = ProcessesProbe(tree=tree)
        found = values(probe.sample(2, [Target(job.pid, "rank", 0)]))
        assert found["job.cpu_s", "job"] >= burnt
        assert found["job.processes", "job"] == 1
        say(job)
        job.wait()
    assert {m.pid for m in tree.update(3).ended} == {job.pid}
    assert tree.processes == 0


def test_a_pid_used_again_is_another_process(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, group=1, session=1)
    process(tmp_path, 20, 10, group=1, session=1, start=100, cpu_ticks=50)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    process(tmp_path, 20, 1, group=1, session=1, start=900, cpu_ticks=99)
    assert {m.pid for m in tree.update(1).ended} == {20}
    assert pids(tree) == {10}
    assert tree.cpu_s == 50 / CLOCK_TICKS
    process(tmp_path, 10, 1, group=1, session=1, start=950)
    tree.update(2)
    assert pids(tree) == set(), "the job's own number, given to somebody else"


def test_children_that_no_update_saw_count_by_their_parents_number(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, cpu_ticks=100)
    process(tmp_path, 20, 10, cpu_ticks=30)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    assert tree.cpu_s == 130 / CLOCK_TICKS
    end(tmp_path, 20)  # waited for with 35, and another came and went with 50
    process(tmp_path, 10, 1, cpu_ticks=110, children_ticks=85)
    tree.update(1)
    assert tree.cpu_s == pytest.approx(195 / CLOCK_TICKS)


def test_children_whose_parent_does_not_wait_count_as_last_seen(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 20, 10, cpu_ticks=30)
    process(tmp_path, 30, 20, cpu_ticks=7)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    end(tmp_path, 30)
    tree.update(1)
    end(tmp_path, 20)
    tree.update(2)
    assert tree.cpu_s == pytest.approx(37 / CLOCK_TICKS)
    end(tmp_path, 10)
    tree.update(3)
    assert tree.cpu_s == pytest.approx(37 / CLOCK_TICKS)


def test_a_foreign_process_is_read_again_after_a_while(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, group=1, session=1)
    process(tmp_path, 20, 1, group=1, session=1)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    process(tmp_path, 20, 10, group=1, session=1, start=500)  # ended and begun again between two updates
    tree.update(1)
    assert pids(tree) == {10}
    tree.update(RESCAN_PERIOD_NS)
    assert pids(tree) == {10, 20}


def test_a_zombie_counts_no_more_but_has_its_exit_status(tmp_path: Path) -> None:
    process(tmp_path, 10, 1)
    process(tmp_path, 20, 10, state="Z", exit_code=9, cpu_ticks=70)
    write_tree(tmp_path, {"proc/20/status": f"Uid:\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\t0\n"})
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    tree.update(1)
    zombie = tree.members()[1]
    assert zombie.zombie
    assert zombie.exit == ExitStatus(None, 9)
    assert tree.processes == 1
    assert tree.cpu_s == 70 / CLOCK_TICKS


@pytest.mark.parametrize(
    ("number", "lives"), [(errno.EMFILE, True), (errno.EACCES, True), (errno.ESRCH, False), (errno.ENOENT, False)]
)
def test_what_cannot_be_read_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, lives: bool
) -> None:
    process(tmp_path, 10, 1)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)

    def refuse(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(KeptFiles, "read", refuse)
    assert [m.pid for m in tree.update(1).ended] == ([] if lives else [10])


def test_a_rank_that_none_of_the_job_started_is_one_of_it_with_its_children(tmp_path: Path) -> None:
    for pid, parent, ticks in ((1, 0, 0), (10, 1, 100), (70, 1, 5000), (71, 70, 300), (80, 1, 900)):
        process(tmp_path, pid, parent, group=1, session=1, cpu_ticks=ticks)
    tree = ProcessTree(10, tmp_path)
    probe = ProcessesProbe(tmp_path, tree=tree)
    before = values(probe.sample(0, [Target(10, "other")]))["job.cpu_s", "job"]
    assert pids(tree) == {10}
    found = values(probe.sample(1, [Target(70, "rank", 0)]))
    assert pids(tree) == {10, 70, 71}
    assert found["job.cpu_s", "job"] == pytest.approx(before + 300 / CLOCK_TICKS), (
        "the rank's earlier use does not count"
    )
    process(tmp_path, 70, 1, group=1, session=1, cpu_ticks=5050)
    assert values(probe.sample(2, [Target(70, "rank", 0)]))["job.cpu_s", "job"] == pytest.approx(
        before + 350 / CLOCK_TICKS
    )
    process(tmp_path, 70, 1, group=1, session=1, start=999)
    assert [m.pid for m in tree.update(3).ended] == [70], "its number was used again, by a stranger"
    assert pids(tree) == {10, 71}


def test_an_orphan_stays_a_member(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"""
import subprocess
command = ["sh", "-c", "exec 3<{fifo}; cat <&3 & echo $!; exec sleep 1000"]
middle = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
print(middle.stdout.readline().strip(), flush=True)
input()
middle.kill(); middle.wait()
print(middle.pid, flush=True)
input()
"""
    # the orphan lives until this is closed; its parent opens the pipe for it, for an open after that would wait for ever
    lifeline = os.open(fifo, os.O_RDWR)
    try:
        with python(code) as job:
            orphan = int(hear(job))
            tree = ProcessTree(job.pid)
            tree.update(0)
            say(job)
            middle = int(hear(job))
            assert {m.pid for m in tree.update(1).ended} == {middle}
            alive = {m.pid: m for m in tree.members()}
            assert set(alive) == {job.pid, orphan}
            assert alive[orphan].parent_pid != middle, "somebody else adopted it"
            say(job)
            job.wait()
            tree.update(2)
            assert {m.pid for m in tree.members()} == {orphan}, "and it stays one after the job's main process"
    finally:
        os.close(lifeline)


def test_only_descendants_are_members(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (10, 1), (20, 10), (30, 20), (40, 1), (50, 40)):
        process(tmp_path, pid, parent, group=1, session=1)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    assert pids(tree) == {10, 20, 30}
    process(tmp_path, 60, 30, group=1, session=1)
    process(tmp_path, 61, 50, group=1, session=1)
    assert [m.pid for m in tree.update(1).started] == [60]


@pytest.mark.parametrize("kind", ["session", "group"])
def test_an_orphan_never_seen_with_its_parent_is_known_by_what_a_member_leads(tmp_path: Path, kind: str) -> None:
    process(tmp_path, 10, 1, group=1, session=1)
    process(tmp_path, 20, 10, **{"group": 1, "session": 1, kind: 20})
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    end(tmp_path, 20)
    process(tmp_path, 70, 1, **{"group": 1, "session": 1, kind: 20})
    process(tmp_path, 71, 1, group=1, session=1)
    tree.update(1)
    assert pids(tree) == {10, 70}


def test_a_command_line_follows_exec(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, comm="sh")
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    write_tree(tmp_path, {"proc/10/stat": stat_line(10, comm="python"), "proc/10/cmdline": "python\0train.py\0"})
    tree.update(3600_000_000_000)
    assert tree.members()[0].command == "python train.py"
