"""Hosts with cores and quotas, and found checks by name. Not a test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from probe_trees import V1_MOUNTS, write_tree
from rn50_advisor.advisor.model.documents.machine_triage import Check
from rn50_advisor.advisor.triage.found_checks import Found, Item
from rn50_advisor.advisor.triage.host.other_load import (
    Watch,
)


def by_name(items: Any) -> dict[str, Item]:
    return {item.check.name if isinstance(item, Found) else item.name: item for item in items}


def check_of(item: Item) -> Check:
    assert isinstance(item, Found)
    return item.check


PID = os.getpid()

CPUS = {"proc/self/status": "Cpus_allowed_list:\t0-3\n", "sys/devices/system/cpu/online": "0-7\n"}


def host(root: Path, files: dict[str, str]) -> Watch:
    return Watch(write_tree(root, {**CPUS, **files}))


def v1(root: Path, quota_us: int) -> Watch:
    group = "sys/fs/cgroup/cpu,cpuacct"
    return host(
        root,
        {
            "proc/self/mountinfo": V1_MOUNTS,
            f"proc/{PID}/cgroup": "3:cpu,cpuacct:/\n",
            f"{group}/cpu.cfs_quota_us": f"{quota_us}\n",
            f"{group}/cpu.cfs_period_us": "100000\n",
            f"{group}/cpu.stat": "nr_periods 100\nnr_throttled 40\nthrottled_time 2000000000\n",
        },
    )
