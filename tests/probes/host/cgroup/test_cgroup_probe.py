"""Cgroups: who is limited by what, in every layout that machines and containers have, and a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probe_trees import V1_MOUNTS, V2_MOUNTS, missing, values, write_tree
from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupProbe, CgroupReader, parse_cpu_max, parse_memory_limit
from rn50_advisor.probes.host.target import Target

V1 = "sys/fs/cgroup/cpu,cpuacct"
RANK = Target(7, "rank", 0)
NONE_V1 = "9223372036854771712\n"


def test_limits_as_written_by_the_kernel() -> None:
    assert parse_cpu_max(b"max 100000\n") is None
    assert parse_cpu_max(b"35000 100000\n") == 0.35
    assert parse_cpu_max(b"50000\n") == 0.5
    assert parse_memory_limit(b"max\n") is None
    assert parse_memory_limit(NONE_V1.encode()) is None
    assert parse_memory_limit(b"1073741824\n") == 1 << 30


def v2_tree(root: Path) -> Path:
    pod = "sys/fs/cgroup/kubepods/pod1"
    return write_tree(
        root,
        {
            "proc/self/mountinfo": V2_MOUNTS,
            "proc/7/stat": "",
            "proc/7/cgroup": "0::/kubepods/pod1/main\n",
            "sys/fs/cgroup/cgroup.procs": "",
            "sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/memory.max": "max\n",
            f"{pod}/cpu.max": "150000 100000\n",
            f"{pod}/cpu.stat": "usage_usec 9\nnr_periods 200\nnr_throttled 50\nthrottled_usec 2500000\n",
            f"{pod}/memory.max": "max\n",
            f"{pod}/main/cpu.max": "400000 100000\n",
            f"{pod}/main/cpu.stat": "usage_usec 9\nnr_periods 1\nnr_throttled 1\nthrottled_usec 1\n",
            f"{pod}/main/memory.max": "2147483648\n",
            f"{pod}/main/memory.current": "1000000\n",
            f"{pod}/main/memory.stat": "anon 300000\nfile 400000\nshmem 150000\nslab_reclaimable 200000\nslab 230000\n",
            f"{pod}/main/memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 3\noom_group_kill 0\n",
        },
    )


def test_v2_takes_the_tightest_quota_on_the_way_to_the_root_and_its_counters(tmp_path: Path) -> None:
    assert values(CgroupProbe(v2_tree(tmp_path)).sample(0, [RANK])) == {
        ("cgroup.quota_cores", "pid:7"): 1.5,
        ("cgroup.throttled_s", "pid:7"): 2.5,
        ("cgroup.periods", "pid:7"): 200.0,
        ("cgroup.throttled_periods", "pid:7"): 50.0,
        ("cgroup.mem_limit_bytes", "pid:7"): 2147483648.0,
        ("cgroup.mem_used_bytes", "pid:7"): 1000000.0,
        ("cgroup.mem_cache_bytes", "pid:7"): 450000.0,  # without what is shared, with names and inodes of files
        ("cgroup.oom_kills", "pid:7"): 3.0,
    }


def v1_tree(root: Path) -> Path:
    return write_tree(
        root,
        {
            "proc/self/mountinfo": V1_MOUNTS,
            "proc/7/cgroup": "5:memory:/job/rank\n3:cpu,cpuacct:/job\n1:name=systemd:/x\n0::/x\n",
            f"{V1}/cpu.cfs_quota_us": "-1\n",
            f"{V1}/cpu.cfs_period_us": "100000\n",
            f"{V1}/job/cpu.cfs_quota_us": "35000\n",
            f"{V1}/job/cpu.cfs_period_us": "100000\n",
            f"{V1}/job/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1048576\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "4096\n",
            "sys/fs/cgroup/memory/job/memory.stat": "cache 1\nshmem 1\ntotal_cache 3000\ntotal_shmem 1000\n",
            "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "sys/fs/cgroup/memory/job/rank/memory.limit_in_bytes": NONE_V1,
            "sys/fs/cgroup/memory/job/rank/memory.usage_in_bytes": "1\n",
            "sys/fs/cgroup/memory/job/rank/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        },
    )


def test_v1_in_a_hybrid_layout_with_comounted_controllers(tmp_path: Path) -> None:
    assert values(CgroupProbe(v1_tree(tmp_path)).sample(0, [RANK])) == {
        ("cgroup.quota_cores", "pid:7"): 0.35,
        ("cgroup.throttled_s", "pid:7"): 1.5,
        ("cgroup.periods", "pid:7"): 10.0,
        ("cgroup.throttled_periods", "pid:7"): 4.0,
        ("cgroup.mem_limit_bytes", "pid:7"): 1048576.0,
        ("cgroup.mem_used_bytes", "pid:7"): 4096.0,
        ("cgroup.mem_cache_bytes", "pid:7"): 2000.0,
        ("cgroup.oom_kills", "pid:7"): 3.0,  # v1 counts a kill in the victim's own cgroup only
    }


def test_no_quota_is_no_throttling_and_no_gap(tmp_path: Path) -> None:
    files = {"proc/self/mountinfo": V2_MOUNTS, "proc/7/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.procs": "7\n"}
    reading = CgroupProbe(write_tree(tmp_path, files)).sample(0, [RANK])
    assert values(reading) == {
        ("cgroup.throttled_s", "pid:7"): 0.0,
        ("cgroup.periods", "pid:7"): 0.0,
        ("cgroup.throttled_periods", "pid:7"): 0.0,
    }
    assert not reading.gaps


@pytest.mark.parametrize(
    ("mounts", "membership"),
    [
        # docker without a cgroup namespace: the host's path, a bind mount of the container's own cgroup
        (V1_MOUNTS.replace("0:33 / ", "0:33 /docker/abc "), "3:cpu,cpuacct:/docker/abc\n0::/\n"),
        # a container in a container: the path is the outer host's, the mount shows its root as "/"
        (V1_MOUNTS, "3:cpu,cpuacct:/outer/docker/abc\n0::/\n"),
        # a process that was put into the container from another cgroup namespace
        (V1_MOUNTS.replace("0:33 / ", "0:33 /docker/abc "), "3:cpu,cpuacct:/\n0::/\n"),
    ],
)
def test_containers_that_mount_only_their_own_subtree(tmp_path: Path, mounts: str, membership: str) -> None:
    files = {
        "proc/self/mountinfo": mounts,
        "proc/7/cgroup": membership,
        f"{V1}/cgroup.procs": "1\n7\n",
        f"{V1}/cpu.cfs_quota_us": "200000\n",
        f"{V1}/cpu.cfs_period_us": "100000\n",
        f"{V1}/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_time 1000000000\n",
    }
    reading = CgroupProbe(write_tree(tmp_path, files)).sample(0, [RANK])
    assert values(reading)["cgroup.quota_cores", "pid:7"] == 2.0
    assert values(reading)["cgroup.throttled_s", "pid:7"] == 1.0


def test_a_process_outside_of_the_namespace_is_found_by_its_pid_or_is_a_gap(tmp_path: Path) -> None:
    files = {
        "proc/self/mountinfo": V2_MOUNTS,
        "proc/7/cgroup": "0::/../sibling\n",
        "proc/8/cgroup": "0::/../elsewhere\n",
        "proc/8/mountinfo": "",
        "sys/fs/cgroup/cgroup.procs": "1\n",
        "sys/fs/cgroup/deep/er/cgroup.procs": "6\n7\n",
        "sys/fs/cgroup/deep/cpu.max": "50000 100000\n",
    }
    probe = CgroupProbe(write_tree(tmp_path, files))
    targets = [RANK, Target(8, "rank", 1)]
    reading = probe.sample(0, targets)
    assert values(reading)["cgroup.quota_cores", "pid:7"] == 0.5
    assert ("cgroup.throttled_s", "pid:8") not in values(reading)
    assert {gap.scope for gap in reading.gaps} == {"pid:8"}
    assert missing(reading) >= {"cgroup.quota_cores", "cgroup.throttled_s", "cgroup.mem_limit_bytes"}
    assert all(gap.hint for gap in reading.gaps)
    assert not probe.sample(1, targets).gaps, "a gap is reported once"


def test_own_mounts_that_show_no_cgroups_give_way_to_those_of_the_process(tmp_path: Path) -> None:
    files = {
        "proc/self/mountinfo": "",
        "proc/7/cgroup": "0::/job\n",
        "proc/7/mountinfo": V2_MOUNTS,
        "proc/7/root/sys/fs/cgroup/job/cpu.max": "10000 100000\n",
    }
    reading = CgroupProbe(write_tree(tmp_path, files)).sample(0, [RANK])
    assert values(reading)["cgroup.quota_cores", "pid:7"] == 0.1


def test_a_moved_process_keeps_its_count_and_gets_the_new_quota(tmp_path: Path) -> None:
    root, probe = v2_tree(tmp_path), CgroupProbe(tmp_path)
    other = "sys/fs/cgroup/other"
    stat = "nr_periods 900\nnr_throttled 800\nthrottled_usec {}\n"
    write_tree(root, {f"{other}/cpu.max": "20000 100000\n", f"{other}/cpu.stat": stat.format(70_000_000)})
    probe.sample(0, [RANK])
    write_tree(root, {"proc/7/cgroup": "0::/other\n"})
    moved = values(probe.sample(1, [RANK]))
    assert moved["cgroup.quota_cores", "pid:7"] == 0.2
    assert moved["cgroup.throttled_s", "pid:7"] == 2.5, "what others suffered there before is not this process's"
    write_tree(root, {f"{other}/cpu.stat": stat.format(71_000_000)})
    assert values(probe.sample(2, [RANK]))["cgroup.throttled_s", "pid:7"] == 3.5


def test_a_quota_set_while_the_job_runs_is_seen(tmp_path: Path) -> None:
    probe = CgroupProbe(v2_tree(tmp_path))
    probe.sample(0, [RANK])
    write_tree(tmp_path, {"sys/fs/cgroup/kubepods/cpu.max": "25000 100000\n"})
    assert values(probe.sample(1, [RANK]))["cgroup.quota_cores", "pid:7"] == 0.25


def test_a_worker_is_reported_only_where_it_differs_from_its_rank(tmp_path: Path) -> None:
    root = v2_tree(tmp_path)
    write_tree(root, {"proc/8/cgroup": "0::/kubepods/pod1/main\n", "proc/9/cgroup": "0::/kubepods\n"})
    reading = CgroupProbe(root).sample(0, [Target(8, "worker", 0), Target(9, "worker", 0), RANK])
    assert {scope for _, scope in values(reading)} == {"pid:7", "pid:9"}


def test_a_vanished_process_is_no_gap(tmp_path: Path) -> None:
    reading = CgroupProbe(v2_tree(tmp_path)).sample(0, [Target(99, "rank", 1)])
    assert not reading.samples
    assert not reading.gaps


def test_a_kernel_without_cgroups_is_a_gap(tmp_path: Path) -> None:
    reading = CgroupProbe(write_tree(tmp_path, {"proc/7/stat": "x"})).sample(0, [RANK])
    assert "cgroup.quota_cores" in missing(reading)


BURN = "import os, sys\nsys.stdin.readline()\nwhile os.times().user < 0.25: pass\nprint('done', flush=True)\nsys.stdin.read()\n"


@pytest.fixture
def limited_cgroup() -> Iterator[Path]:
    """A real CPU cgroup at 35 %."""
    v1 = Path("/sys/fs/cgroup/cpu")
    v2 = Path("/sys/fs/cgroup/cgroup.controllers")
    on_v2 = v2.exists() and "cpu" in Path("/sys/fs/cgroup/cgroup.subtree_control").read_text().split()
    if os.geteuid() != 0 or not (on_v2 or (v1 / "cpu.cfs_quota_us").exists()):
        pytest.skip("REAL THROTTLING IS NOT TESTED HERE: needs root and a CPU cgroup controller (v1 or delegated v2)")
    directory = (Path("/sys/fs/cgroup") if on_v2 else v1) / f"rn50-advisor-test-{os.getpid()}"
    try:
        directory.mkdir()
    except OSError as e:
        pytest.skip(f"REAL THROTTLING IS NOT TESTED HERE: cannot make a cgroup: {e}")
    try:
        if on_v2:
            (directory / "cpu.max").write_text("35000 100000")
        else:
            (directory / "cpu.cfs_period_us").write_text("100000")
            (directory / "cpu.cfs_quota_us").write_text("35000")
        yield directory
    finally:
        directory.rmdir()


def test_a_real_quota_of_35_percent_is_seen_and_its_throttling_grows(limited_cgroup: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        probe, target = CgroupProbe(), Target(child.pid, "rank", 0)
        scope = f"pid:{child.pid}"
        before = values(probe.sample(0, [target]))
        assert before.get(("cgroup.quota_cores", scope)) != 0.35
        (limited_cgroup / "cgroup.procs").write_text(str(child.pid))
        start = values(probe.sample(1, [target]))
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        end = values(probe.sample(2, [target]))
        assert CgroupReader().state_of(child.pid)
        child.stdin.close()
        child.wait()
    assert start["cgroup.quota_cores", scope] == 0.35
    # 0.25 s of CPU at 35 % is at least two periods that ran out, each held back for more than 20 ms
    assert end["cgroup.throttled_s", scope] - start["cgroup.throttled_s", scope] > 0.04
    assert end["cgroup.throttled_periods", scope] - start["cgroup.throttled_periods", scope] >= 2
    assert not probe.sample(3, [target]).samples, "the process is gone"


@pytest.mark.parametrize(
    ("files", "invisible"),
    [
        pytest.param({}, {"cpu", "memory"}, id="no controllers: limits may be set above"),
        pytest.param({"cpu.max": "max 100000\n"}, {"memory"}, id="one of two"),
        pytest.param({"nested/cpu.max": "max 100000\n", "nested/memory.max": "max\n"}, set(), id="further down"),
    ],
)
def test_groups_of_a_container_without_controllers_are_a_gap(
    tmp_path: Path, files: dict[str, str], invisible: set[str]
) -> None:
    top = "sys/fs/cgroup"
    tree = {f"{top}/cgroup.type": "domain\n", f"{top}/nested/cgroup.type": "domain\n"}
    tree |= {"proc/self/mountinfo": V2_MOUNTS, "proc/7/cgroup": "0::/nested\n", "proc/7/stat": ""}
    tree |= {f"{top}/{name}": text for name, text in files.items()}
    reading = CgroupProbe(write_tree(tmp_path, tree)).sample(0, [RANK])
    limits = {"cgroup.quota_cores": "cpu", "cgroup.mem_limit_bytes": "memory"}
    assert {limits[metric] for metric in missing(reading) & limits.keys()} == invisible
    assert (("cgroup.throttled_s", "pid:7") in values(reading)) == ("cpu" not in invisible)
    assert all("control" in gap.reason and gap.hint for gap in reading.gaps)


def test_a_root_that_we_may_not_enter_is_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"proc/self/mountinfo": "", "proc/7/cgroup": "0::/job\n", "proc/7/mountinfo": V2_MOUNTS, "proc/7/stat": ""}
    probe = CgroupProbe(write_tree(tmp_path, files))

    def refuse(path: object, **_: object) -> None:
        raise PermissionError("proc/7/root")

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert missing(probe.sample(0, [RANK])) >= {"cgroup.quota_cores", "cgroup.mem_limit_bytes"}


def test_a_looser_quota_that_others_use_up_holds_back_too(tmp_path: Path) -> None:
    root, probe = v2_tree(tmp_path), CgroupProbe(tmp_path)
    probe.sample(0, [RANK])
    shared = "sys/fs/cgroup/kubepods/pod1/main"  # four cores; the pod above it has one and a half
    write_tree(root, {f"{shared}/cpu.stat": "nr_periods 41\nnr_throttled 31\nthrottled_usec 4000001\n"})
    found = values(probe.sample(1, [RANK]))
    assert found["cgroup.quota_cores", "pid:7"] == 1.5
    before = found["cgroup.throttled_s", "pid:7"]
    write_tree(root, {f"{shared}/cpu.stat": "nr_periods 51\nnr_throttled 40\nthrottled_usec 5000001\n"})
    found = values(probe.sample(2, [RANK]))
    assert found["cgroup.throttled_s", "pid:7"] == pytest.approx(before + 1.0)
    assert found["cgroup.throttled_periods", "pid:7"] == pytest.approx(50 + 9)
