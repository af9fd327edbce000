"""Per-process numbers and the process tree, on real processes and on recorded ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probe_trees import missing, stat_line, values, write_tree
from process_trees import hear, process, python, recorded, say
from rn50_advisor.probes.host.process.process_probe import (
    HELPER_CPU_S,
    HELPERS_MAX,
    PRIVATE_PERIOD_NS,
    ProcessesProbe,
    ProcessTree,
)
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, PAGE_BYTES
from rn50_advisor.probes.host.target import Target

RANK, WORKER = Target(7, "rank", 0), Target(8, "worker", 0)


def test_everything_that_is_reported_of_a_process(tmp_path: Path) -> None:
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


def test_a_kernel_without_kinds_of_memory_is_a_gap(tmp_path: Path) -> None:
    write_tree(
        tmp_path, recorded(tmp_path) | {"proc/7/status": "Name:\tx\nVmRSS:\t400 kB\nnonvoluntary_ctxt_switches:\t4\n"}
    )
    reading = ProcessesProbe(tmp_path).sample(0, [RANK])
    assert missing(reading) == {"proc.held_bytes"}
    assert ("proc.held_bytes", "pid:7") not in values(reading)


def test_private_pages_are_read_for_one_worker_as_long_as_it_lives_and_not_at_every_tick(tmp_path: Path) -> None:
    for pid in (7, 8, 9):
        write_tree(tmp_path, recorded(tmp_path, pid))
    probe, other = ProcessesProbe(tmp_path), Target(9, "worker", 0)

    def private_bytes(now_ns: int, *workers: Target) -> dict[str, float]:
        found = values(probe.sample(now_ns, [RANK, *workers]))
        return {scope: value for (metric, scope), value in found.items() if metric == "proc.private_bytes"}

    assert private_bytes(0, WORKER, other) == {"pid:8": 120 * 1024.0}
    assert private_bytes(PRIVATE_PERIOD_NS - 1, WORKER, other) == {}
    hour_ns = 3600_000_000_000
    assert private_bytes(hour_ns, other, WORKER) == {"pid:8": 120 * 1024.0}, "the one that was followed before"
    assert private_bytes(2 * hour_ns, other) == {"pid:9": 120 * 1024.0}
    assert private_bytes(3 * hour_ns) == {}


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


def test_a_few_helpers_that_compute_are_reported(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, cpu_ticks=30)
    process(tmp_path, 7, 10, cpu_ticks=90 * CLOCK_TICKS)
    for pid in range(20, 20 + HELPERS_MAX + 2):
        process(tmp_path, pid, 10, cpu_ticks=pid * CLOCK_TICKS)
    process(tmp_path, 40, 10, cpu_ticks=int(0.9 * HELPER_CPU_S * CLOCK_TICKS))
    process(tmp_path, 41, 10, cpu_ticks=90 * CLOCK_TICKS, state="Z")
    probe = ProcessesProbe(tmp_path, tree=ProcessTree(10, tmp_path))
    cpu_s = {s.scope: s.value for s in probe.sample(0, [RANK]).samples if s.metric == "proc.cpu_s"}
    most = range(20 + HELPERS_MAX + 1, 21, -1)
    assert cpu_s == {"pid:7": 90.0, **{f"pid:{pid}": float(pid) for pid in most}}
