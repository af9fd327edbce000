"""Per-process numbers and the process tree, on real processes and on recorded ones."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probe_trees import missing, stat_line, values, write_tree
from rn50_advisor.probes.host.process.process_probe import (
    HELPER_CPU_S,
    HELPERS_MAX,
    PRIVATE_PERIOD_NS,
    ExitStatus,
    ProcessesProbe,
    ProcessTree,
)
from rn50_advisor.probes.host.process.process_tree import RESCAN_PERIOD_NS
from rn50_advisor.probes.host.process.thread_delays import PERIOD_NS_PER_THREAD, ThreadDelays
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, PAGE_BYTES, KeptFiles, parse_stat
from rn50_advisor.probes.host.target import Target

RANK, WORKER = Target(7, "rank", 0), Target(8, "worker", 0)


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[str]]:
    """A real Python that answers lines on a pipe; its own process group, so that no test runner's is taken for the job's."""
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def say(child: subprocess.Popen[str], line: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def recorded(root: Path, pid: int = 7, **stat: int) -> dict[str, str]:
    files = {
        "stat": stat_line(pid, **{"cpu_ticks": 250, "threads": 12, "rss_pages": 100, **stat}),  # type: ignore[arg-type]
        "schedstat": "9000000000 1500000000 77\n",
        "io": "rchar: 5000\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 0\n",
        "status": (
            "Name:\tpython\nVmRSS:\t  400 kB\nRssAnon:\t  200 kB\nRssFile:\t  150 kB\nRssShmem:\t   50 kB\n"
            "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t42\n"
        ),
        "smaps_rollup": "0-1 ---p 0 0:0 0 [rollup]\nRss: 400 kB\nPrivate_Clean: 30 kB\nPrivate_Dirty: 90 kB\n",
        f"task/{pid}/schedstat": "9000000000 1500000000 77\n",
        f"task/{pid + 1000}/schedstat": "100000000 2500000000 9\n",
        "cmdline": "python\0train.py\0--x y\0",
    }
    return {f"proc/{pid}/{name}": text for name, text in files.items()}


def test_everything_that_is_told_of_a_process(tmp_path: Path) -> None:
    reading = ProcessesProbe(write_tree(tmp_path, recorded(tmp_path))).sample(0, [RANK])
    assert values(reading) == {
        ("proc.cpu_s", "pid:7"): 250 / CLOCK_TICKS,
        ("proc.rss_bytes", "pid:7"): 100.0 * PAGE_BYTES,
        ("proc.threads", "pid:7"): 12.0,
        ("proc.run_delay_s", "pid:7"): 1.5,
        ("proc.threads_delay_s", "pid:7"): 4.0,
        ("proc.held_bytes", "pid:7"): 250 * 1024.0,
        ("proc.read_bytes", "pid:7"): 4096.0,
        ("proc.write_bytes", "pid:7"): 512.0,
        ("proc.rchar_bytes", "pid:7"): 5000.0,
        ("proc.involuntary_switches", "pid:7"): 42.0,
    }
    assert not reading.gaps


@pytest.mark.parametrize(
    ("absent", "gaps"),
    [
        ("io", {"proc.read_bytes", "proc.write_bytes", "proc.rchar_bytes"}),
        ("schedstat", {"proc.run_delay_s", "proc.threads_delay_s"}),
    ],
)
def test_a_missing_account_is_a_gap_once_for_a_rank_and_once_for_all_its_workers(
    tmp_path: Path, absent: str, gaps: set[str]
) -> None:
    for pid in (7, 8, 9):
        write_tree(tmp_path, recorded(tmp_path, pid))
        (tmp_path / f"proc/{pid}/{absent}").unlink()
    probe = ProcessesProbe(tmp_path)
    targets = [RANK, WORKER, Target(9, "worker", 0)]
    reading = probe.sample(0, targets)
    assert missing(reading) == gaps
    assert {g.scope for g in reading.gaps} == {"pid:7", "pid:8"}
    assert all(g.hint for g in reading.gaps)
    assert not probe.sample(1, targets).gaps
    assert ("proc.cpu_s", "pid:9") in values(reading)


def test_a_kernel_that_keeps_no_scheduling_account_reads_zero_and_is_a_gap(tmp_path: Path) -> None:
    write_tree(tmp_path, recorded(tmp_path) | {"proc/7/schedstat": "0 0 0\n"})
    reading = ProcessesProbe(tmp_path).sample(0, [RANK])
    assert missing(reading) == {"proc.run_delay_s", "proc.threads_delay_s"}
    assert ("proc.run_delay_s", "pid:7") not in values(reading)


def test_io_of_another_user_is_a_gap_with_a_hint() -> None:
    code = """
import os
from rn50_advisor.probes.host.process.process_probe import ProcessesProbe
from rn50_advisor.probes.host.target import Target
parent = os.getppid()
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
else:
    parent = 1
reading = ProcessesProbe().sample(0, [Target(parent, "rank", 0)])
print(sorted(s.metric for s in reading.samples))
print(sorted((g.metric, "CAP_SYS_PTRACE" in g.hint) for g in reading.gaps))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    samples, gaps = done.stdout.splitlines()
    assert "proc.cpu_s" in samples
    assert "_bytes" not in samples.replace("rss_bytes", "").replace("held_bytes", "")
    assert gaps == str([(f"proc.{name}", True) for name in ("rchar_bytes", "read_bytes", "write_bytes")])


def test_a_kernel_that_does_not_tell_what_memory_is_for_is_a_gap(tmp_path: Path) -> None:
    write_tree(
        tmp_path, recorded(tmp_path) | {"proc/7/status": "Name:\tx\nVmRSS:\t400 kB\nnonvoluntary_ctxt_switches:\t4\n"}
    )
    reading = ProcessesProbe(tmp_path).sample(0, [RANK])
    assert missing(reading) == {"proc.held_bytes"}
    assert ("proc.held_bytes", "pid:7") not in values(reading)


def test_pages_of_its_own_are_told_of_one_worker_as_long_as_it_lives_and_not_at_every_tick(tmp_path: Path) -> None:
    for pid in (7, 8, 9):
        write_tree(tmp_path, recorded(tmp_path, pid))
    probe, other = ProcessesProbe(tmp_path), Target(9, "worker", 0)

    def told(now_ns: int, *workers: Target) -> dict[str, float]:
        found = values(probe.sample(now_ns, [RANK, *workers]))
        return {scope: value for (metric, scope), value in found.items() if metric == "proc.private_bytes"}

    assert told(0, WORKER, other) == {"pid:8": 120 * 1024.0}
    assert told(PRIVATE_PERIOD_NS - 1, WORKER, other) == {}
    hour_ns = 3600_000_000_000
    assert told(hour_ns, other, WORKER) == {"pid:8": 120 * 1024.0}, "the one that was followed before"
    assert told(2 * hour_ns, other) == {"pid:9": 120 * 1024.0}
    assert told(3 * hour_ns) == {}


def delays(root: Path, **threads: int) -> None:
    """Seconds that each thread of process 7 has waited for a core."""
    for thread in (root / "proc/7/task").glob("*"):
        (thread / "schedstat").unlink()
        thread.rmdir()
    write_tree(root, {f"proc/7/task/{name}/schedstat": f"9 {s * 10**9} 7\n" for name, s in threads.items()})


def test_waiting_is_summed_over_threads_and_the_ended_keep_theirs(tmp_path: Path) -> None:
    reader = ThreadDelays(tmp_path)
    later = iter(range(0, 10**12, 10**10))
    delays(tmp_path, t7=1, t8=5)
    assert reader.read(next(later), 7, 2) == 6.0
    delays(tmp_path, t7=2, t9=3)
    assert reader.read(next(later), 7, 2) == 10.0
    delays(tmp_path, t7=2, t9=1)  # the number of an ended thread, given to a new one
    assert reader.read(next(later), 7, 2) == 11.0
    assert reader.read(next(later), 99, 2) is None
    reader.prune([])
    assert reader.read(next(later), 7, 2) == 3.0


def test_many_threads_are_looked_at_seldom(tmp_path: Path) -> None:
    delays(tmp_path, t7=1)
    reader = ThreadDelays(tmp_path)
    assert reader.read(0, 7, 200) == 1.0
    assert reader.read(200 * PERIOD_NS_PER_THREAD - 1, 7, 200) is None
    assert reader.read(200 * PERIOD_NS_PER_THREAD, 7, 200) == 1.0


@pytest.mark.parametrize("state", ["Z", "X"])
def test_the_dead_use_nothing_and_are_no_gap(tmp_path: Path, state: str) -> None:
    write_tree(tmp_path, recorded(tmp_path) | {"proc/7/stat": stat_line(7, state=state)})
    reading = ProcessesProbe(tmp_path).sample(0, [RANK, Target(99, "worker", 0)])
    assert not reading.samples
    assert not reading.gaps


def test_a_real_process_that_works_and_reads(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(1_000_000))
    work = f"import os\nwhile os.times().user < 0.2: pass\nopen({str(data)!r}, 'rb').read()\n"
    with python(f"input(); print('up', flush=True); input()\n{work}\nprint('done', flush=True); input()") as child:
        say(child)
        assert hear(child) == "up"
        probe, target = ProcessesProbe(), Target(child.pid, "rank", 0)
        scope = f"pid:{child.pid}"
        before = values(probe.sample(0, [target]))
        say(child)
        assert hear(child) == "done"
        after = values(probe.sample(1, [target]))
        assert after["proc.cpu_s", scope] >= 0.2 > before["proc.cpu_s", scope]
        assert after["proc.rchar_bytes", scope] - before["proc.rchar_bytes", scope] >= 1_000_000
        assert after["proc.rss_bytes", scope] > 1_000_000
        assert after["proc.threads", scope] == 1
        say(child)
        child.wait()
        gone = probe.sample(2, [target])
        assert not gone.samples
        assert not gone.gaps


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
        assert tree.update(1) is tree.update(1), "the same moment is looked at once"
        probe = ProcessesProbe(tree=tree)
        found = values(probe.sample(2, [Target(job.pid, "rank", 0)]))
        assert found["job.cpu_s", "job"] >= burnt
        assert found["job.processes", "job"] == 1
        say(job)
        job.wait()
    assert {m.pid for m in tree.update(3).ended} == {job.pid}
    assert tree.processes == 0


def test_an_orphan_stays_a_member(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"""
import subprocess
command = ["sh", "-c", "cat {fifo} & echo $!; exec sleep 1000"]
middle = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
print(middle.stdout.readline().strip(), flush=True)
input()
middle.kill(); middle.wait()
print(middle.pid, flush=True)
input()
"""
    lifeline = os.open(fifo, os.O_RDWR)  # the orphan lives until this is closed
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


def process(root: Path, pid: int, parent: int, **stat: int | str) -> None:
    write_tree(root, {f"proc/{pid}/stat": stat_line(pid, parent=parent, **stat), f"proc/{pid}/cmdline": f"p{pid}\0"})  # type: ignore[arg-type]


def end(root: Path, *pids: int) -> None:
    for pid in pids:
        for file in (root / f"proc/{pid}").iterdir():
            file.unlink()
        (root / f"proc/{pid}").rmdir()


def pids(tree: ProcessTree) -> set[int]:
    return {m.pid for m in tree.members()}


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


def test_children_that_no_update_saw_count_by_what_their_parent_was_told(tmp_path: Path) -> None:
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


def test_a_foreign_process_is_looked_at_again_after_a_while(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, group=1, session=1)
    process(tmp_path, 20, 1, group=1, session=1)
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    process(tmp_path, 20, 10, group=1, session=1, start=500)  # ended and begun again between two updates
    tree.update(1)
    assert pids(tree) == {10}
    tree.update(RESCAN_PERIOD_NS)
    assert pids(tree) == {10, 20}


def test_a_command_line_follows_exec(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, comm="sh")
    tree = ProcessTree(10, tmp_path)
    tree.update(0)
    write_tree(tmp_path, {"proc/10/stat": stat_line(10, comm="python"), "proc/10/cmdline": "python\0train.py\0"})
    tree.update(3600_000_000_000)
    assert tree.members()[0].command == "python train.py"


def test_a_zombie_counts_no_more_but_tells_how_it_ended(tmp_path: Path) -> None:
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
        "what the rank used before is not told now"
    )
    process(tmp_path, 70, 1, group=1, session=1, cpu_ticks=5050)
    assert values(probe.sample(2, [Target(70, "rank", 0)]))["job.cpu_s", "job"] == pytest.approx(
        before + 350 / CLOCK_TICKS
    )
    process(tmp_path, 70, 1, group=1, session=1, start=999)
    assert [m.pid for m in tree.update(3).ended] == [70], "its number was used again, by a stranger"
    assert pids(tree) == {10, 71}


def test_helpers_that_compute_are_told_of_and_no_more_than_a_few(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, cpu_ticks=30)
    process(tmp_path, 7, 10, cpu_ticks=90 * CLOCK_TICKS)
    for pid in range(20, 20 + HELPERS_MAX + 2):
        process(tmp_path, pid, 10, cpu_ticks=pid * CLOCK_TICKS)
    process(tmp_path, 40, 10, cpu_ticks=int(0.9 * HELPER_CPU_S * CLOCK_TICKS))
    process(tmp_path, 41, 10, cpu_ticks=90 * CLOCK_TICKS, state="Z")
    probe = ProcessesProbe(tmp_path, tree=ProcessTree(10, tmp_path))
    told = {s.scope: s.value for s in probe.sample(0, [RANK]).samples if s.metric == "proc.cpu_s"}
    most = range(20 + HELPERS_MAX + 1, 21, -1)
    assert told == {"pid:7": 90.0, **{f"pid:{pid}": float(pid) for pid in most}}
