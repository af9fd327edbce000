"""DAT008, one rank is short of data: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, loader, rank
from rule_runs import RULES, found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "DAT008",
    jobs.dat008,
    lines={
        "excess": ({"wait": 0.1}, {"wait": 0.0999}),
        "late": ({"late": 0.5}, {"late": 0.49}),
        "slower": (
            {"wait": 0.5, "others": 0.2, "busy": 0.3, "slower": 1.11},
            {"wait": 0.5, "others": 0.2, "busy": 0.3, "slower": 1.09},
        ),
    },
    false_alarms={
        "a problem that all ranks share": {"wait": 0.3, "others": 0.3},
        "all are short of data, and the last one gets it as fast": {"wait": 0.5, "others": 0.3, "slower": 1.05},
        "batches of the others take as long as the step": {"wait": 0.9, "busy": 0.1, "made": 0.91, "slower": 1.04},
        "ranks that take turns": {"late": 0.3},
        "the rank that waits longer is not the last to come": {"late": 0.0},
    },
    severities=(({"wait": 0.35}, "critical"), ({"wait": 0.2}, "high"), ({"wait": 0.12}, "medium")),
    ranks=(1,),
    where=Where(SCRIPT, 57),
    best=({"wait": 0.3, "busy": 0.9}, warm(1 / 0.9)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("made", "best_s"), [(0.1, 0.5), (0.7, 0.7), (0.9, 0.9)])
def test_dat008_promises_no_step_that_the_others_could_not_be_fed_in(made: float, best_s: float) -> None:
    saving = found("DAT008", TABLE.job(wait=0.9, busy=0.5, made=made, slower=2.0)).saving
    assert saving is not None
    assert 1.0 - saving.seconds_per_step[0] == pytest.approx(best_s + 0.25 * (1.0 - best_s), abs=0.01)


SSD = {"mount_point": "/ssd", "fs_type": "xfs", "device": "/dev/nvme0n1", "disk": "nvme0n1", "network": False}


DISK = {"mount_point": "/data", "fs_type": "ext4", "device": "/dev/sdb", "disk": "sdb", "network": False}


NFS = {"mount_point": "/far", "fs_type": "nfs4", "device": "server:/x", "disk": None, "network": True}


@pytest.mark.parametrize(
    ("part", "read_mb", "mounts", "title"),
    [
        (
            "blocked",
            1.0,
            (SSD, DISK),
            "move the data of rank 1 from /data (ext4 on sdb) to /ssd (xfs on nvme0n1), where the",
        ),
        ("blocked", 1.0, (DISK, DISK), "make /data (ext4 on sdb) as fast for rank 1 as for the others"),
        ("blocked", 1.0, (None, None), "put the data of rank 1 on storage as fast as that of the others"),
        ("blocked", 0.0, (SSD, NFS), "find what loading of rank 1 on /far (nfs4 from server:/x) waits for"),
        ("blocked", 0.0, (None, None), "find what loading of rank 1 waits for"),
        ("cpu", 1.0, (SSD, DISK), "balance the cost of samples between rank 1 and the other ranks"),
        ("delay", 1.0, (SSD, DISK), "give the loader of rank 1 dedicated cores"),
        (
            None,
            1.0,
            (SSD, DISK),
            "check the data of rank 1 on /data (ext4 on sdb): mount, shard, sample sizes, workers",
        ),
    ],
)
def test_dat008_advises_by_the_part_in_which_batches_are_slower(
    part: str | None, read_mb: float, mounts: tuple[dict[str, Any] | None, ...], title: str
) -> None:
    values: dict[str, Any] = {"fetch.wall_s": {0: 0.1, 1: 0.5}, "fetch.read_mb": {0: 0.0, 1: read_mb}}
    shares = ("blocked", "cpu", "delay") if part else ()
    values |= {f"fetch.{name}_share": {0: 0.3, 1: 0.8 if name == part else 0.1} for name in shares}
    loaders = (loader(0, 2, mount=mounts[0]), loader(1, 2, line=57, mount=mounts[1]))
    finding = found("DAT008", TABLE.job(values=values, loaders=loaders))
    assert finding.fixes[0].title.startswith(title) and "NUMA" not in finding.fixes[0].change
    rows = {item.metric: (item.value, item.threshold) for item in finding.evidence}
    assert rows["fetch.read_mb"] == (read_mb, 0.0) and rows["fetch.wall_s"] == (0.5, 0.1)
    assert rows.get("fetch.blocked_share") == ((0.8 if part == "blocked" else 0.1, 0.3) if part else None)


@pytest.mark.parametrize(("cpus", "named"), [(range(8, 16), True), (range(4, 12), False), (range(16), False)])
def test_dat008_names_the_node_whose_cpus_its_rank_has(cpus: range, named: bool) -> None:
    nodes = {"0": list(range(8)), "1": list(range(8, 16))}
    where = replace(jobs.META, environment={"numa_nodes": nodes})
    fix = found("DAT008", TABLE.job(meta=where, facts={"1": {"cpus_allowed": list(cpus)}})).fixes[0]
    assert ("its CPUs are those of NUMA node 1" in fix.change) is named
    one = replace(jobs.META, environment={"numa_nodes": {"0": list(range(16))}})
    assert "NUMA" not in found("DAT008", TABLE.job(meta=one, facts={"1": {"cpus_allowed": list(cpus)}})).fixes[0].change


def test_dat008_and_cmp007_are_about_jobs_of_several_ranks() -> None:
    alone = {0: rank(input_wait=0.5)}
    values = {"comm.late_share": {0: 1.0}}
    for rule in ("DAT008", "CMP007"):
        assert run_rule(RULES[rule], jobs.job(alone, values=values), Config()) == Clear(rule)


def test_dat008_shows_what_making_a_batch_takes_there_and_elsewhere() -> None:
    row = {e.metric: e for e in found("DAT008", TABLE.job()).evidence}["fetch.wall_s"]
    assert (row.value, row.threshold) == (0.5, 0.1)
