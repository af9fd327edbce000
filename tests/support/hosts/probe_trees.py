"""Writes stand-ins for /proc and /sys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rn50_advisor.advisor.model.metrics import SAMPLES, Reading

V1_MOUNTS = """\
30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
34 30 0:30 / /sys/fs/cgroup/memory rw,nosuid shared:15 - cgroup cgroup rw,memory
37 30 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:18 - cgroup cgroup rw,cpu,cpuacct
"""
V2_MOUNTS = "25 22 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def values(reading: Reading) -> dict[tuple[str, str], float]:
    """Samples by metric and scope; asserts that every metric is in the catalogue and has a scope of the right kind."""
    found: dict[tuple[str, str], float] = {}
    for sample in reading.samples:
        kind = sample.scope.partition(":")[0]
        assert kind in SAMPLES[sample.metric].scope.split("|"), sample
        assert (sample.metric, sample.scope) not in found, f"reported twice: {sample}"
        assert isinstance(sample.value, float), sample
        found[sample.metric, sample.scope] = sample.value
    return found


def missing(reading: Reading) -> set[str]:
    return {gap.metric for gap in reading.gaps}


def stat_line(
    pid: int,
    *,
    comm: str = "python",
    parent: int = 1,
    state: str = "S",
    cpu_ticks: int = 0,
    start: int = 100,
    **more: int,
) -> str:
    """/proc/<pid>/stat with 52 fields; `more`: group, session, threads, rss_pages, exit_code, children_ticks."""
    f = ["0"] * 53
    f[3], f[4], f[5], f[6] = state, str(parent), str(more.get("group", pid)), str(more.get("session", pid))
    f[14], f[20], f[22], f[24] = str(cpu_ticks), str(more.get("threads", 1)), str(start), str(more.get("rss_pages", 0))
    f[16] = str(more.get("children_ticks", 0))
    f[52] = str(more.get("exit_code", 0))
    return f"{pid} ({comm}) " + " ".join(f[3:]) + "\n"
