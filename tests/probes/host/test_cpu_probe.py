"""CPU times, load, clocks, and the cores a job may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from probe_trees import V2_MOUNTS, missing, stat_line, values, write_tree
from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupReader
from rn50_advisor.probes.host.cpu_probe import CORES_PERIOD_NS, CpuProbe, allowed_cores
from rn50_advisor.probes.host.process.process_tree import ProcessTree
from rn50_advisor.probes.host.procfs import CLOCK_TICKS
from rn50_advisor.probes.host.target import Target

STAT = """\
cpu  1000 100 300 5000 70 20 30 400 999 9
cpu0 600 50 100 2000 30 10 20 300 999 9
cpu1 400 50 200 3000 40 10 10 100 0 0
intr 12345 0 0 9
ctxt 1
procs_running 3
"""


def tree(root: Path, **files: str) -> Path:
    base = {
        "proc/stat": STAT,
        "proc/loadavg": "1.50 0.80 0.10 3/412 777\n",
        "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2000.0\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n",
    }
    return write_tree(root, base | {name.replace("__", "/"): text for name, text in files.items()})


def test_times_of_the_host_and_of_every_core(tmp_path: Path) -> None:
    found = values(CpuProbe(tree(tmp_path)).sample(0, []))
    seconds = {key: value * CLOCK_TICKS for key, value in found.items() if key[0].endswith("_s")}
    assert seconds["cpu.busy_s", "host"] == pytest.approx(1450)  # guest time is inside user time
    assert seconds["cpu.idle_s", "host"] == pytest.approx(5000)
    assert seconds["cpu.iowait_s", "host"] == pytest.approx(70)
    assert seconds["cpu.steal_s", "host"] == pytest.approx(400)
    assert seconds["cpu.busy_s", "cpu:0"] == pytest.approx(780)
    assert seconds["cpu.steal_s", "cpu:1"] == pytest.approx(100)
    assert len(seconds) == 12


def test_load_cores_and_clock(tmp_path: Path) -> None:
    found = values(CpuProbe(tree(tmp_path)).sample(0, []))
    assert found["cpu.cores", "host"] == 2
    assert found["cpu.load1", "host"] == 1.5
    assert found["cpu.runnable", "host"] == 3
    assert found["cpu.freq_mhz", "host"] == 2500


def test_cpufreq_is_believed_over_cpuinfo(tmp_path: Path) -> None:
    root = tree(tmp_path, **{f"sys/devices/system/cpu/cpu{i}/cpufreq/scaling_cur_freq": "1200000\n" for i in range(2)})
    assert values(CpuProbe(root).sample(0, []))["cpu.freq_mhz", "host"] == 1200


def test_the_cores_of_a_big_machine_are_reported_less_often(tmp_path: Path) -> None:
    lines = "".join(f"cpu{i} 1 0 0 0 0 0 0 0 0 0\n" for i in range(128))
    probe = CpuProbe(tree(tmp_path, proc__stat=f"cpu  128 0 0 0 0 0 0 0 0 0\n{lines}intr 0\n"))
    cores = [sum(s.startswith("cpu:") for _, s in values(probe.sample(t, []))) for t in (0, 1, CORES_PERIOD_NS)]
    assert cores == [128 * 4, 0, 128 * 4]
    assert values(probe.sample(1, []))["cpu.cores", "host"] == 128


def test_missing_sources_are_gaps_reported_once(tmp_path: Path) -> None:
    probe = CpuProbe(tmp_path)
    reading = probe.sample(0, [])
    assert not reading.samples
    assert missing(reading) >= {"cpu.busy_s", "cpu.steal_s", "cpu.load1", "cpu.freq_mhz"}
    assert not probe.sample(1, []).gaps


@pytest.mark.parametrize(
    ("allowed", "online", "quota", "expected"),
    [
        ("0-7", "0-7", "max 100000", 8),
        ("0-7", "0-7", "350000 100000", 3.5),
        ("0,2", "0-7", "350000 100000", 2),
        ("0-127", "0-7", "max 100000", 8),  # a virtual machine may list every CPU it could ever be given
        ("0-1", "0-7", "400000 100000", 2),
    ],
)
def test_allowed_cores_are_the_smaller_of_affinity_and_quota(
    tmp_path: Path, allowed: str, online: str, quota: str, expected: float
) -> None:
    write_tree(
        tmp_path,
        {
            "proc/7/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n",
            "proc/7/cgroup": "0::/job\n",
            "proc/self/mountinfo": V2_MOUNTS,
            "sys/devices/system/cpu/online": online,
            "sys/fs/cgroup/job/cpu.max": quota,
        },
    )
    assert allowed_cores(7, tmp_path) == expected
    probe = CpuProbe(tmp_path, job_pid=7)
    assert values(probe.sample(0, []))["cpu.allowed_cores", "job"] == expected


def test_allowed_cores_follow_the_affinity_of_a_real_process() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = f"import os, sys; os.sched_setaffinity(0, [{cpu}]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert allowed_cores(child.pid) == 1
        found = values(CpuProbe().sample(0, [Target(child.pid, "rank", 0)]))
        assert found["cpu.allowed_cores", "job"] == 1
        assert found["cpu.given_cores", "job"] == allowed_cores(os.getpid()), "whatever the job binds itself to"
        child.communicate()
    assert allowed_cores(child.pid) is None


def test_the_real_machine_is_busy_somewhere() -> None:
    found = values(CpuProbe(job_pid=os.getpid()).sample(0, []))
    assert found["cpu.busy_s", "host"] > 0
    assert 0 < found["cpu.allowed_cores", "job"] <= found["cpu.cores", "host"] == os.sysconf("SC_NPROCESSORS_ONLN")


def test_times_of_zero_are_a_gap_and_no_idle_machine(tmp_path: Path) -> None:
    zeros = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nintr 0\n"  # gVisor
    probe = CpuProbe(tree(tmp_path, proc__stat=zeros))
    reading = probe.sample(0, [])
    assert values(reading)["cpu.cores", "host"] == 1
    assert not [name for name, _ in values(reading) if name.endswith("_s")]
    assert {"cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s"} <= missing(reading)
    assert "cpu.busy_s" not in missing(probe.sample(1, []))


def test_unknown_cores_are_a_gap(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__7__status="Name:\tpython\n", proc__7__cgroup="0::/\n")
    reading = CpuProbe(root, job_pid=7).sample(0, [])
    assert "cpu.allowed_cores" in missing(reading)
    assert "cpu.allowed_cores" not in missing(CpuProbe(root, job_pid=99).sample(0, [])), "it has ended"


def test_where_proc_leaves_the_affinity_out_the_kernel_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rn50_advisor.probes.host.cpu_probe.read_text", lambda path: "Name:\tpython\n")
    assert allowed_cores(os.getpid(), reader=CgroupReader(Path("/absent"))) == len(os.sched_getaffinity(0))


def test_ranks_that_the_main_process_did_not_start_are_asked_themselves(tmp_path: Path) -> None:
    """As srun's, which the node's daemon starts: each on cores of its own, and srun itself on one."""
    status = {7: "0", 70: "2-3", 71: "4-5", 72: "0-9"}
    files = {f"proc/{pid}/status": f"Cpus_allowed_list:\t{cpus}\n" for pid, cpus in status.items()}
    files |= {f"proc/{pid}/stat": stat_line(pid) for pid in status} | {"proc/7/cmdline": "srun"}
    root = write_tree(tree(tmp_path), files)
    ranks = [Target(70, "rank", 0), Target(71, "rank", 1), Target(72, "worker", 0)]
    family = ProcessTree(7, root)
    probe = CpuProbe(root, job_pid=7, tree=family)
    family.update(0)
    assert values(probe.sample(0, ranks))["cpu.allowed_cores", "job"] == 1
    for rank in ranks:
        family.adopt(rank.pid)
    assert values(probe.sample(1, ranks))["cpu.allowed_cores", "job"] == 4
