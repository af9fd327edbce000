"""DSK001, the disk is saturated: its table and its advice."""

from __future__ import annotations

import pytest

import storage_rule_cases as storage_jobs
from rule_cases import LINE
from rule_runs import found
from rule_table import Table, waits, warm
from storage_rule_cases import NFS, NOT_STARVED, STARVED, causes
from table_checks import Check, checks

TABLE = Table(
    "DSK001",
    storage_jobs.dsk001,
    lines={
        **STARVED,
        "busy": ({"busy": 0.9}, {"busy": 0.899}),
        "queue": ({"queue": 2.0}, {"queue": 1.99}),
    },
    false_alarms={
        **NOT_STARVED,
        "one reader keeps a fast disk busy": {"queue": 1.0},
        "a limit before the disk": {"busy": 0.05, "queue": 0.1},
        "a network mount has no disk here": {"storage": NFS},
    },
    severities=waits("wait"),
    where=LINE,
    best=({"wait": 0.4}, warm(1 / 0.6)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_a_disk_that_others_saturate_is_the_root() -> None:
    assert causes(storage_jobs.dsk001(own=0.03)) == {"DSK001": None, "DAT002": "DSK001"}
    finding = found("DSK001", storage_jobs.dsk001(own=0.03))
    assert "by other processes: sdb" in finding.title
    assert "other users of sdb" in finding.fixes[0].title and finding.fixes[0].where is None


def test_other_processes_are_not_blamed_if_the_jobs_share_is_unknown() -> None:
    assert "others" not in found("DSK001", storage_jobs.dsk001(own=None)).title
